"""Recreates damaged data files from the topic: the same offsets, decoded by the same code, must give the same bytes.

As long as the log has the entry of the tick that wrote a file, it states which offsets that tick read. The tick is
repeated from the state before its commit and writes a run of its own. A file of that run takes the damaged file's place
only if its rows, bounds and digest are those that were committed. Anything else is discarded.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidelake.errors import FILE_FROM_COPY, NotRewritable, TidelakeError
from tidelake.integrity.verification import is_from_ingest
from tidelake.plugins.framing import framing_of
from tidelake.plugins.tick import PastTick
from tidelake.settings.collection import CollectionSettings
from tidelake.spark.engine_errors import engine_fact
from tidelake.storage import blobs
from tidelake.storage.location import Location
from tidelake.storage.notices import warn
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.files import RunFile, are_same_bytes, check_whole, discard_runs, open_verified
from tidelake.store.table_log import entry_that_added, values_of
from tidelake.topic.topic import Topic

_COPIED_BYTES = 1 << 20


def restore_files(
    spark: SparkSession,
    collection: Collection,
    settings: CollectionSettings,
    topics: Sequence[Topic],
    damaged: Sequence[str],
) -> dict[str, TidelakeError | None]:
    """Recreate damaged files of the updates table; damaged bytes are set aside.

    Args:
        spark: the session.
        collection: the collection.
        settings: its settings.
        topics: its topics.
        damaged: paths of live files below the table's folder.

    Returns:
        By path, the error that kept a file from being restored; None if it was restored.

    Cost: each tick that wrote any of the files is read, decoded and written once more.
    """
    table = OpenTable(collection.paths.updates)
    files = {file.path: file for file in table.files()}
    outcomes: dict[str, TidelakeError | None] = {}
    for path in damaged:
        if path in outcomes:
            continue
        try:
            past = past_tick(table, path)
        except NotRewritable as error:
            outcomes[path] = error
            continue
        together = [file.path for file in past.files if file.path in damaged]
        try:
            outcomes |= _restore(spark, collection, settings, topics, past, [files[each] for each in together])
        except TidelakeError as error:  # a topic error: its hint says what to do
            outcomes |= dict.fromkeys(together, error)
        except (PySparkException, Py4JJavaError) as error:
            fact = f"its messages cannot be read: {engine_fact(error)}"
            why = NotRewritable(str(table.path), fact, FILE_FROM_COPY)
            outcomes |= dict.fromkeys(together, why)
    return outcomes


def past_tick(table: OpenTable, path: str) -> PastTick:
    """Return the tick that wrote a file.

    Raises:
        NotRewritable: the table no longer has the file, no tick of ingest wrote it, or the log no longer has
            the tick's entry.
    """
    file = next((file for file in table.files() if file.path == path), None)
    if file is None:
        fix = "nothing needs to be restored: run `tidelake verify` again"
        raise NotRewritable(str(table.path), "the table no longer has the file: it was replaced in the meantime", fix)
    if not is_from_ingest(file):
        kind = file.run.partition("-")[0]
        fact = f"it belongs to a run of the kind '{kind}', which no tick of ingest wrote"
        raise NotRewritable(str(table.path), fact, FILE_FROM_COPY)
    added = entry_that_added(table.path, path)
    before = None if added is None else table.at(added[0] - 1)
    if added is None or before is None:
        fact = "the log no longer has the entry of the tick that wrote it, so its offsets are unknown"
        raise NotRewritable(str(table.path), fact, FILE_FROM_COPY)
    here = table.at(added[0])
    assert here is not None, "a version after one that can be read"
    new = {file.path for file in here.files()} - {file.path for file in before.files()}
    return PastTick(before, values_of(added[1]), [file for file in here.files() if file.path in new])


def _restore(
    spark: SparkSession,
    collection: Collection,
    settings: CollectionSettings,
    topics: Sequence[Topic],
    past: PastTick,
    damaged: Sequence[RunFile],
) -> dict[str, TidelakeError | None]:
    tick = framing_of(settings.framing).tick(spark, collection, settings, topics)
    made = tick.write_again(past)
    outcomes: dict[str, TidelakeError | None] = {}
    try:
        for file in damaged:
            same = next((other for other in made if are_same_bytes(past.table.path, file, other)), None)
            if same is None:
                why = "its offsets were read again, but the result differs from the committed file"
                outcomes[file.path] = NotRewritable(str(past.table.path), why, FILE_FROM_COPY)
                continue
            _put_back(past.table.path, file, same)
            outcomes[file.path] = None
    finally:
        discard_runs(past.table.path, made)
    return outcomes


def _put_back(table: Location, file: RunFile, made: RunFile) -> None:
    """Replace a damaged file's bytes with the committed ones, which another file has; set the damaged bytes aside.

    Raises:
        DamagedTable: the file is still not the one that was committed.
    """
    place = table / file.path
    with suppress(FileNotFoundError):
        blobs.set_aside(place, place.parent / f".damaged-{place.name}-{secrets.token_hex(4)}")
    with blobs.open_stream(table / made.path) as source, blobs.writing(place) as sink:
        while chunk := source.read(_COPIED_BYTES):
            sink.write(chunk)
    blobs.make_durable([place])
    blobs.make_names_durable([place.parent, *(folder for folder in place.parents if folder.path > table.path)])
    open_verified(table, file).close()
    check_whole(table, [file])
    warn("a damaged file was recreated from its topic", table=str(table), file=file.path)
