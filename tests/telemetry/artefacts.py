"""A search for secrets, in every form in which they may be written, in everything that a run leaves behind."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_POLL_S = 0.02


def forms(secret: str, user: str) -> list[re.Pattern[bytes]]:
    """Patterns for a secret, escaped any number of times, in a URL, in base64, or in a header for basic auth."""
    escaped = r"\\*".join(re.escape(character) for character in re.sub(r"\\+", "", secret))
    encoded = [quote(secret), json.dumps(secret)[1:-1]]
    encoded += [base64.b64encode(text.encode()).decode() for text in (secret, f"{user}:{secret}")]
    return [re.compile(text.encode()) for text in (escaped, *map(re.escape, encoded))]


def found_in(contents: Iterable[tuple[str, bytes]], secrets: Mapping[str, str], user: str) -> set[str]:
    """Where secrets were found, each with its name: `the log: KAFKA_PASSWORD`."""
    patterns = {name: forms(secret, user) for name, secret in secrets.items()}
    return {
        f"{place}: {name}"
        for place, content in contents
        for name, alternatives in patterns.items()
        if any(pattern.search(content) for pattern in alternatives)
    }


def files_below(*folders: Path) -> Iterable[tuple[str, bytes]]:
    """Each file with its path and content, decompressed if it is gzipped."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                yield str(path), gzip.decompress(content) if path.suffix == ".gz" else content


@dataclass
class Run:
    """A process that ended: what it printed, and the command lines of all processes that it started."""

    status: int
    stdout: bytes
    stderr: bytes
    commands: set[str]


def run_watched(command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Run:
    """Run a command, and record the command lines of its processes until it ends."""
    commands: set[str] = set()
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # all processes that it starts belong to this session
    )
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL_S):
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    if os.getsid(int(folder.name)) == process.pid:
                        commands.add((folder / "cmdline").read_text(encoding="utf-8", errors="replace"))
                except OSError:  # it has ended in the meantime
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        stdout, stderr = process.communicate(timeout=600)
    finally:
        process.kill()
        ended.set()
        watcher.join()
    return Run(process.returncode, stdout, stderr, commands)
