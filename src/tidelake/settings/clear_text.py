"""The consent that settings need before anything is sent in the clear to another machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from tidelake.settings.block import Block
from tidelake.settings.loopback import is_loopback


@dataclass(frozen=True)
class Consent:
    """A setting that allows sending something in the clear.

    Args:
        setting: the setting that gives the consent.
        place: the setting that an error names if there is no consent, such as the URL.
        sends: what would be sent, as a clause with `{host}`: `data would go to {host} over http`.
        nothing: why the consent has no effect, as a clause: `no data is sent over http`.
        fix: the better alternative.
    """

    setting: str
    place: str
    sends: str
    nothing: str
    fix: str = "use https"

    def check(self, block: Block, given: bool, is_clear: bool, hosts: Iterable[str]) -> None:
        """Refuse a consent that has no effect, and a connection that needs one and has none.

        Args:
            block: the block of these settings.
            given: whether the consent is given.
            is_clear: whether anything would be sent in the clear.
            hosts: where it would be sent; this machine needs no consent.

        Raises:
            ConfigurationError: names the setting, the problem and the fix.
        """
        if given and not is_clear:
            block.child(self.setting).fail(f"has no effect: {self.nothing}", "remove it")
        remote = next((host for host in hosts if not is_loopback(host)), None)
        if is_clear and not given and remote is not None:
            block.child(self.place).fail(
                f"{self.sends.format(host=remote)}, where anyone in between can read it",
                f"{self.fix}, or set `{self.setting}: true` in the `{block.field}:` block",
            )


def host_of(place: Block, url: str, service: str, example: str) -> str:
    """Return the host in the URL of a service; empty if the URL has none.

    Raises:
        ConfigurationError: brackets in the URL do not enclose an address.
    """
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        place.fail(f"is not the address of {service}", f"write it as `{example}`")
