"""Random damage to one file of a store, as disks, people and other programs cause it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

CATALOG, CURRENT, NAMES = "catalog", "current", "names"
_STALE = "a stale copy"
_WEIGHTS = {"data": 4, "entry": 2}
_LENDERS = 4
"""A swap, or a copy of another file's bytes, chooses among at most this many files of other collections."""


@dataclass(frozen=True)
class Damaged:
    """A file that was damaged."""

    table: str
    """The file's table: `updates`, `proofs`, …, `catalog`, `names`, or `current`."""
    what: str
    """The file's kind; see `kind_of`."""
    change: str
    files: tuple[Path, ...]
    """The damaged file and, if it was swapped, the other file."""

    @property
    def kind(self) -> str:
        """The file's table and its kind."""
        return f"{self.table} {self.what}"


@dataclass
class Damager:
    """Damages files in folders. Files can be links, so they are replaced, never written to.

    Args:
        random: the source of all randomness.
        elsewhere: by kind, files of other collections, whose bytes can replace those of a damaged file.
        earlier: returns, for a path, the same file in an earlier copy of the store, or None.
    """

    random: Random
    elsewhere: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    earlier: Callable[[Path], Path | None] = field(default=lambda _: None)

    def damage(self, own: Sequence[Path], others: Sequence[Path] = ()) -> Damaged:
        """Damage one of a collection's own files; data and entries are more likely to be chosen than other kinds.

        Args:
            own: the folders of the collection, of its name and of the catalog.
            others: folders of another collection, whose files can be swapped with the damaged file.
        """
        by_kind: dict[tuple[str, str], list[Path]] = {}
        for file in files_of(own):
            by_kind.setdefault(kind_of(file), []).append(file)
        kinds = sorted(by_kind)
        (table, what), *_ = self.random.choices(kinds, [_WEIGHTS.get(what, 1) for _, what in kinds])
        file = self.random.choice(by_kind[table, what])
        neighbours = [other for other in files_of(others) if kind_of(other)[1] == what]
        return self.change(file, by_kind[table, what], neighbours)

    def change(self, file: Path, of_table: Sequence[Path], neighbours: Sequence[Path] = ()) -> Damaged:
        """Damage this file, perhaps by swapping it with another file of its table or with one of `neighbours`."""
        table, what = kind_of(file)
        data = file.read_bytes()
        siblings = _alike(file, data, of_table)
        swappable = _alike(file, data, self.random.sample(neighbours, min(len(neighbours), _LENDERS)))
        elsewhere = self.elsewhere.get(what, ())
        lent = _alike(file, data, self.random.sample(elsewhere, min(len(elsewhere), _LENDERS)))
        possible = ["deleted", "appended bytes"]
        possible += ["a flipped bit", "truncated", "a zeroed block"] if data else []
        possible += ["swapped with another version"] if siblings else []
        possible += ["swapped with another collection"] if swappable else []
        possible += ["another's bytes"] if lent or siblings else []
        stale = self._stale(file, siblings)
        possible += [_STALE] if stale is not None else []
        change = self.random.choice(possible)
        files: tuple[Path, ...] = (file,)
        if change == "deleted":
            file.unlink()
        elif change.startswith("swapped"):
            other = self.random.choice(siblings if "version" in change else swappable)
            replace_file(file, other.read_bytes())
            replace_file(other, data)
            files = (file, other)
        elif change == "another's bytes":
            replace_file(file, self.random.choice([*lent, *siblings]).read_bytes())
        elif change == _STALE:
            assert stale is not None
            replace_file(file, stale)
        else:
            changed = data
            while changed == data:  # the block may already have been all zeros
                changed = changed_bytes(change, data, self.random)
            replace_file(file, changed)
        return Damaged(table, what, change, files)

    def _stale(self, file: Path, siblings: Sequence[Path]) -> bytes | None:
        """Return the bytes of the file in the earlier copy of the store, if they differ from those it has now.

        Otherwise, return the bytes of the sibling just before it by name; None if there is none.
        """
        earlier = self.earlier(file)
        if earlier is not None and earlier.read_bytes() != file.read_bytes():
            return earlier.read_bytes()
        before = [other for other in sorted(siblings) if other < file]
        return before[-1].read_bytes() if before else None


def changed_bytes(change: str, data: bytes, random: Random) -> bytes:
    """Change bytes: flip a bit, truncate, zero a block, or append, as the name of the change says."""
    if change == "a flipped bit":
        changed = bytearray(data)
        bit = random.randrange(8 * len(data))
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)
    if change == "truncated":
        return data[: random.randrange(len(data))]
    if change == "a zeroed block":
        start = random.randrange(len(data))
        end = min(len(data), start + random.choice((1, 16, 512, 4096)))
        return data[:start] + bytes(end - start) + data[end:]
    return data + random.choice((b"\n", b"\0" * 16, b"{}\n", b"PAR1", data or b"x"))


def files_of(folders: Sequence[Path]) -> list[Path]:
    """Every file below these folders."""
    return sorted(file for folder in folders for file in folder.rglob("*") if file.is_file())


def by_kind(folder: Path) -> dict[str, list[Path]]:
    """The files below a folder, by their kind."""
    kinds: dict[str, list[Path]] = {}
    for file in files_of([folder]):
        kinds.setdefault(kind_of(file)[1], []).append(file)
    return kinds


def kind_of(file: Path) -> tuple[str, str]:
    """Return a file's table and its kind."""
    name, folder = file.name, file.parent.name
    owner = NAMES if file.parents[2].name == NAMES else file.parents[1].name
    if folder == "_names":
        return owner, "note of a name"
    if folder == "_acked":
        return owner, "checkpoint's marker" if name.endswith(".checkpoint") else "marker"
    if folder == "_delta_log":
        return owner, "hint" if name.startswith("_last") else "checkpoint" if ".checkpoint" in name else "entry"
    table = file.parents[1].name if folder.startswith("_run=") else folder
    return table, "data"


def _alike(file: Path, data: bytes, others: Sequence[Path]) -> list[Path]:
    return [other for other in others if other != file and other.read_bytes() != data]


def replace_file(file: Path, data: bytes) -> None:
    """Replace a file with these bytes, without writing to it: it can be a link to a file that others read."""
    file.unlink()
    file.write_bytes(data)
