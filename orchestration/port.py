"""`python -m orchestration.port PORT`: checks that Dagster's webserver can listen on a port of this machine."""

from __future__ import annotations

import socket
import sys

HOST = "127.0.0.1"
_PORT_MAX = 65_535


def problem_of(port: str) -> str | None:
    """Return why the port cannot be used, with a hint; None if it can."""
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= _PORT_MAX):
        return f"{port!r} is not a port\nhint: choose a number from 1 to {_PORT_MAX}, as in `make ui PORT=3001`"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the webserver does
        try:
            probe.bind((HOST, int(port)))
            probe.listen()
        except OSError as error:
            return (
                f"the port {port} of {HOST} cannot be used: {(error.strerror or str(error)).lower()}\n"
                f"hint: another Dagster may be running there: open http://{HOST}:{port}; to start one more, "
                "choose another port: `make ui PORT=3001`"
            )
    return None


def main() -> int:
    """Print the problem; return the exit status, which is 1 if there is a problem."""
    problem = problem_of(sys.argv[1])
    if problem is not None:
        print(f"error: {problem}", file=sys.stderr)
    return int(problem is not None)


if __name__ == "__main__":
    sys.exit(main())
