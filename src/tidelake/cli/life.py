"""`tidelake rename`, `drop` and `gc`: the life of a collection after its creation."""

from __future__ import annotations

from typing import Annotated

import typer

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, StoredNameArgument
from tidelake.cli.render import print_json, print_rows, say
from tidelake.read.words import counted


def rename(
    name: StoredNameArgument,
    other: Annotated[str, typer.Argument(metavar="NEW_NAME", help="The collection's new name.")],
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Give a collection another name; its history, holds and id stay the same. Does not start a JVM.

    The settings must use the new name from then on; until they do, jobs refuse the old name.
    """
    from tidelake.read.publication import was_published_as

    lake = open_lake(config, skip_invalid=True)
    lake.rename(name, other)
    if as_json:
        print_json({"name": other, "earlier_name": name})
        return
    say(f"'{name}' is now called '{other}'")
    if name in lake.settings.names:
        say(f"next: in {lake.settings.file}, call it {other}, too")
    renamed = lake.catalog.get(other)
    if renamed is not None and was_published_as(renamed, name):
        say(
            f"the table that was published as '{name}' is no longer updated; `tidelake current {other}` makes a new one"
        )


def drop(
    name: StoredNameArgument,
    apply: Annotated[
        bool, typer.Option("--apply", help="Drop it; without this option, only show what would be dropped.")
    ] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Drop a collection: it can no longer be read, and `tidelake gc` deletes its tables later. Does not start a JVM.

    Reads that have begun can finish, and the tables stay while somebody holds a time. This cannot be undone.
    """
    lake = open_lake(config, skip_invalid=True, read_only=not apply)
    found = lake.dropping(name)
    if apply:
        lake.drop(name)
    if as_json:
        print_json(found.as_json() | {"dropped": apply})
        return
    contents = found.damaged or f"{counted(found.rows, 'stored statement')}, {found.bytes:,} bytes"
    if not apply:
        say(f"{name}: {contents}; drop it: tidelake drop {name} --apply")
    else:
        say(
            f"{name}: dropped ({contents}); `tidelake gc` deletes its tables once a day has passed since `drop` or "
            "`gc` found no hold"
        )
    for held in found.held_by:
        say(f"held by {held}")
    if name in lake.settings.names:
        say(f"the settings still name it: the next ingest creates '{name}' again, from what its topic still has")


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Delete what is no longer needed, and show why the rest stays. Does not start a JVM.

    Dead runs are deleted a day after they were found for the second time, by this command or by a compaction. The
    tables of a dropped collection are deleted once a day has passed since `tidelake drop` or this command found no hold
    on it.
    """
    lake = open_lake(config, skip_invalid=True, read_only=dry_run)
    garbage = lake.gc(dry_run)
    if as_json:
        print_json(garbage.as_json() | {"dry_run": dry_run})
        return
    would = "would go" if dry_run else "gone"
    rows = [
        {
            "what": item.kind.replace("_", " "),
            "name": item.name,
            "place": item.place,
            "bytes": None if item.bytes is None else f"{item.bytes:,}",
            "": would if item.goes else "stays",
            "why": item.why,
        }
        for item in sorted(garbage.items, key=lambda item: (not item.goes, item.place, item.why))
    ]
    if rows:
        print_rows("garbage", ["what", "name", "place", "bytes", "", "why"], rows)
    going = [item for item in garbage.items if item.goes]
    say(f"{would}: {garbage.bytes_gone:,} bytes in {counted(len(going), 'place')}")
    if garbage.tombstones:
        kept = counted(garbage.tombstones, "dropped collection has", "dropped collections have")
        say(f"{kept} only handles left, which keep the ids from being reused")
