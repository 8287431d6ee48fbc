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
_ONLY_THIS_MACHINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


class Browser:
    """A browser page; `asked` lists every address that it has requested."""

    def __init__(self, process: subprocess.Popen[bytes], reading: int, writing: int) -> None:
        self.process, self.reading, self.writing = process, reading, writing
        self.asked: list[str] = []
        self._left = b""
        self._number = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Network.enable")
        self.call("Page.enable")

    def open(self, address: str, width: int = 1500, height: int = 950) -> None:
        """Navigate to a page; it may still be loading when this returns."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=address)

    def wait_for(self, condition: str, timeout_s: float = 90.0) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + timeout_s
        while not self.value(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{condition} is not true; the page says: {self.text()[:2000]}")
            time.sleep(0.2)

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

    def picture(self, file: Path) -> None:
        """Save a picture of the window as a PNG file."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the debugging protocol and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next_message()
            if answer.get("method") == "Network.requestWillBeSent":
                self.asked.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

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
