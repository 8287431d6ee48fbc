"""Headless Chromium, driven over its debugging pipe; it can reach only this machine."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_CHROMIUM = "no Chromium on PATH (Debian: apt-get install chromium)"
"""Why a test is skipped."""
_ONLY_THIS_MACHINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
_DOMAINS = ("Network", "Page", "Runtime", "Log")
_BROKEN = Path(__file__).with_name("broken.js")


_LEFT = ("Inspected target navigated or closed", "Execution context was destroyed", "Cannot find context")
"""Chromium's errors if the page navigates away before it has answered."""


class PageLeft(Exception):
    """The page navigated away during a query."""


class Browser:
    """A browser page; `asked` lists every address that it or one of its workers has requested.

    `problems` lists what went wrong since the page was opened: requests that failed, script errors, and what the
    page's security policy refused.
    """

    def __init__(self, process: subprocess.Popen[bytes], reading: int, writing: int) -> None:
        self.process, self.reading, self.writing = process, reading, writing
        self.asked: list[str] = []
        self.problems: list[str] = []
        self._addresses: dict[str, str] = {}
        self._left = b""
        self._number = 0
        self._session: str | None = None
        self._sessions: set[str] = set()
        self._target: str | None = None
        self.start_over()

    def start_over(self) -> None:
        """Close the page and continue with an empty one; later requests of the old page are ignored."""
        old, self._session, self._sessions = self._target, None, set()
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        if old is not None:
            self.call("Target.closeTarget", targetId=old)
        session = self.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        self._session, self._sessions = session, {session}
        self.asked, self.problems, self._addresses = [], [], {}
        for domain in _DOMAINS:
            self.call(f"{domain}.enable")
        self.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)

    def open(self, address: str, width: int = 1500, height: int = 950) -> None:
        """Navigate to a page, which can still be loading when this returns."""
        self.problems = []
        self.resize(width, height)
        self.call("Page.navigate", url=address)

    def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, theme: str) -> None:
        """Ask pages for the theme `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": theme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def broken(self) -> list[str]:
        """The problems, and the elements that are displayed wrongly, such as text that is too faint."""
        return [*self.value(_BROKEN.read_text(encoding="utf-8")), *self.problems]

    def wait_for(self, condition: str, timeout_s: float = 90.0) -> None:
        """Wait until a JavaScript expression is true, on this page or on the next one."""
        deadline = time.monotonic() + timeout_s
        while not self._is_true(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{condition} is not true; the page says: {self.text()[:2000]}")
            time.sleep(0.2)

    def _is_true(self, condition: str) -> bool:
        try:
            return bool(self.value(condition))
        except PageLeft:
            return False

    def wait_for_text(self, text: str) -> None:
        """Wait until the page shows this text."""
        self.wait_for(f"!!document.body && document.body.innerText.includes({json.dumps(text)})")

    def click(self, text: str) -> None:
        """Click the innermost element with exactly this text."""
        matches = f"[...document.querySelectorAll('*')].filter(element => element.innerText === {json.dumps(text)})"
        self.wait_for(f"!!{matches}.pop()")
        self.value(f"{matches}.pop().click()")

    def text(self) -> str:
        """All the text that the page shows."""
        return str(self.value("document.body ? document.body.innerText : ''"))

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"]
        return result.get("value")

    def settle(self, still_s: float = 1.5) -> None:
        """Wait until the page is loaded and its text has not changed for a while."""
        self.wait_for("document.readyState === 'complete'")
        before, since = self.text(), time.monotonic()
        while time.monotonic() - since < still_s:
            time.sleep(0.2)
            if (now := self.text()) != before:
                before, since = now, time.monotonic()

    def picture(self, file: Path) -> None:
        """Save a picture of the window as a PNG file."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the debugging protocol and return its result."""
        number = self._send(method, parameters, self._session)
        while True:
            answer = self._next_message()
            if answer.get("sessionId") in self._sessions:
                self._note(answer.get("method", ""), answer.get("params", {}))
            if answer.get("id") == number:
                if str(answer.get("error", {}).get("message", "")).startswith(_LEFT):
                    raise PageLeft(answer)
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _send(self, method: str, parameters: dict[str, Any], session: str | None) -> int:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        return self._number

    def _note(self, event: str, about: dict[str, Any]) -> None:
        """Record the requests and problems that an event reports."""
        if event == "Target.attachedToTarget":  # a worker of the page
            self._sessions.add(about["sessionId"])
            self._send("Network.enable", {}, about["sessionId"])
        elif event == "Network.requestWillBeSent":
            self._addresses[about["requestId"]] = about["request"]["url"]
            self.asked.append(about["request"]["url"])
        elif event == "Network.responseReceived" and about["response"]["status"] >= 400:
            self.problems.append(f"{about['response']['status']}: {about['response']['url']}")
        elif event == "Network.loadingFailed" and not about.get("canceled"):
            self.problems.append(f"{about['errorText']}: {self._addresses.get(about['requestId'], '?')}")
        elif event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.problems.append(str(details.get("exception", {}).get("description", details["text"])))
        elif event == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.problems.append(str(about["entry"]["text"]))

    def _next_message(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            part = os.read(self.reading, 1 << 16)
            assert part, f"the browser exited with status {self.process.poll()}"
            self._left += part
        message, self._left = self._left.split(b"\0", 1)
        return dict(json.loads(message))


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser that can reach 127.0.0.1 and nothing else; its files go into `profile`."""
    assert CHROMIUM is not None
    to_browser, writing = os.pipe()
    reading, from_browser = os.pipe()

    def pipes() -> None:  # the browser reads from descriptor 3 and writes to 4
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        for end, number in zip(ends, (3, 4), strict=True):
            os.dup2(end, number)

    process = subprocess.Popen(
        [
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--remote-debugging-pipe",
            _ONLY_THIS_MACHINE,
            f"--user-data-dir={profile}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=False,
        preexec_fn=pipes,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Browser(process, reading, writing)
    finally:
        os.close(writing)
        os.close(reading)
        process.terminate()
        process.wait(timeout=30)
