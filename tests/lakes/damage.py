"""Random damage to one file of a store: what disks, people and other programs do to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

Change = Callable[[Path, bytes, list[Path], Random], None]


def files_of(store: Path) -> list[Path]:
    """Every file of a store except those of `current`, which is a separate table and can always be rebuilt."""
    return sorted(
        file for file in store.rglob("*") if file.is_file() and "current" not in file.relative_to(store).parts
    )


def kind_of(store: Path, file: Path) -> str:
    """What a file is: its table, and `data`, `entry`, `marker`, `checkpoint` or `hint`."""
    parts = file.relative_to(store).parts
    table = parts[0] if parts[0] == "catalog" else parts[2]
    if parts[-2] == "_acked":
        what = "marker"
    elif parts[-2] == "_delta_log":
        what = "hint" if file.name.startswith("_last") else "checkpoint" if ".checkpoint" in file.name else "entry"
    else:
        what = "data"
    return f"{table} {what}"


def _flip(file: Path, data: bytes, others: list[Path], random: Random) -> None:
    changed = bytearray(data)
    bit = random.randrange(8 * len(data))
    changed[bit // 8] ^= 1 << bit % 8
    file.write_bytes(changed)


def _truncate(file: Path, data: bytes, others: list[Path], random: Random) -> None:
    file.write_bytes(data[: random.randrange(len(data))])


def _zero(file: Path, data: bytes, others: list[Path], random: Random) -> None:
    start = random.randrange(len(data))
    end = min(len(data), start + random.choice((1, 16, 512, 4096)))
    file.write_bytes(data[:start] + bytes(end - start) + data[end:])


def _delete(file: Path, data: bytes, others: list[Path], random: Random) -> None:
    file.unlink()


def _append(file: Path, data: bytes, others: list[Path], random: Random) -> None:
    file.write_bytes(data + random.choice((b"\n", b"\0" * 16, b"{}\n", b"PAR1", data)))


def _swap(file: Path, data: bytes, others: list[Path], random: Random) -> None:
    """Swap the contents with another file of the same kind, of this table or of another one."""
    other = random.choice(others)
    theirs = other.read_bytes()
    other.write_bytes(data)
    file.write_bytes(theirs)


def _replace(file: Path, data: bytes, others: list[Path], random: Random) -> None:
    """Overwrite the file with another file of the same kind, as a misplaced copy would."""
    file.write_bytes(random.choice(others).read_bytes())


CHANGES: dict[str, Change] = {
    "a flipped bit": _flip,
    "truncated": _truncate,
    "a zeroed block": _zero,
    "deleted": _delete,
    "appended bytes": _append,
    "swapped": _swap,
    "another's bytes": _replace,
}


def damage(store: Path, random: Random) -> tuple[str, str]:
    """Damage one file of a store; every kind of file is equally likely. Return the kind of file and the damage."""
    by_kind: dict[str, list[Path]] = {}
    for file in files_of(store):
        by_kind.setdefault(kind_of(store, file), []).append(file)
    kind = random.choice(sorted(by_kind))
    file = random.choice(by_kind[kind])
    data = file.read_bytes()
    what = kind.partition(" ")[2]
    alike = [
        other
        for other_kind, files in by_kind.items()
        if other_kind.endswith(what)
        for other in files
        if other != file and other.read_bytes() != data
    ]
    name = random.choice(sorted(CHANGES) if data and alike else ["deleted"])
    CHANGES[name](file, data, alike, random)
    return kind, name
