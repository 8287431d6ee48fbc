"""`tidelake upgrade`: converts a store from an earlier format to the newest one."""

from __future__ import annotations

from tidelake import open_lake
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption
from tidelake.cli.render import print_json, say
from tidelake.read.words import counted


def upgrade(config: ConfigOption = CONFIG, as_json: JsonOption = False) -> None:
    """Convert the whole store to the newest format, which every earlier release refuses. Does not start a JVM.

    Every job does this for the collections that it writes to. This cannot be undone.
    """
    names = open_lake(config, skip_invalid=True).upgrade()
    if as_json:
        print_json({"collections": names})
    else:
        say(f"the store has the newest format; it has {counted(len(names), 'collection')}")
