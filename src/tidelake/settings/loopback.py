"""Tells whether a host is this machine. If it is, data sent to it in the clear does not leave the machine."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, judged by its name or its address; no name is looked up.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]")]
    [True, True, True, True, True]
    >>> [is_loopback(host) for host in ("schemas", "10.0.0.1", "0.0.0.0", "127.0.0.1.example", "localhost.example", "")]
    [False, False, False, False, False, False]
    """
    bare = host.removeprefix("[").removesuffix("]").lower()
    if bare == "localhost":
        return True
    try:
        return ip_address(bare).is_loopback
    except ValueError:
        return False
