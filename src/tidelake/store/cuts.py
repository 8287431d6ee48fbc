"""The notes about cut transactions, whose first changes a connector might not have sent. Needs no JVM.

Missing changes are noticed only in the table whose event the connector sent first, but they may belong to any table.
So ingest notes the transaction in the store, and the seal of each table looks there. A note is a blob that is never
changed or deleted; notes are rare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256

from tidelake.errors import name_in_kafka
from tidelake.protocol.transactions import Cut
from tidelake.storage import blobs
from tidelake.storage.notices import warn
from tidelake.store.commit import OpenTable
from tidelake.store.entry import Collection
from tidelake.store.state import read_topics, topic_identity_value
from tidelake.store.sweep import delete_unfinished

_DIGITS = 19
_NAME = re.compile(rf"[0-9]{{{_DIGITS}}}-[0-9]+-([0-9a-f]{{16}})\.json", re.ASCII)
_UNFINISHED_S = 86_400


def note_cuts(collection: Collection, topic: str, identity: int | None, cuts: Sequence[Cut]) -> None:
    """Durably record transactions that are cut. The tick that found them may commit only afterwards.

    Args:
        collection: the collection whose tick found them.
        topic: the name of the transaction topic in the values of the updates table.
        identity: the identity that the cluster gave this topic; None if topics have none.
        cuts: the transactions.
    """
    if not cuts:
        return
    folder, digest = collection.paths.store.cuts, _digest(topic, identity)
    blobs.make_folder(folder)
    for cut in cuts:
        text = json.dumps({"transaction_topic": topic} | asdict(cut))
        try:
            blobs.create(folder / f"{cut.lsn:0{_DIGITS}d}-{cut.id}-{digest}.json", text.encode())
        except FileExistsError:  # another tick has noted it
            continue
        warn("the first changes of a transaction might not have been sent", collection=collection.name, **asdict(cut))
    blobs.make_names_durable([folder, folder.parent])
    delete_unfinished(blobs.list_folder(folder).blobs, blobs.now_s(folder) - _UNFINISHED_S)


def read_cuts(collection: Collection, table: OpenTable, lower: int) -> list[Cut]:
    """Return, in commit order, the cut transactions at or after `lower` in the topics that a collection reads.

    Args:
        collection: the collection.
        table: its updates table, which knows the topics and their identities.
        lower: the first time.

    Cost: one listing, and each note of these topics at or after `lower`.
    """
    folder, found = collection.paths.store.cuts, []
    topics: dict[str, str] = {}
    for name in sorted(read_topics(table), key=len):  # a recreated topic that was accepted has a longer name
        topics[name_in_kafka(name)] = name
    digests = {_digest(name, table.value(topic_identity_value(name))) for name in topics.values()}
    for name in sorted(blobs.list_names_after(folder, f"{lower:0{_DIGITS}d}")):
        match = _NAME.fullmatch(name)
        if match is not None and match[1] in digests:
            note = json.loads(blobs.read(folder / name))
            del note["transaction_topic"]
            found.append(Cut(**note))
    return found


def _digest(topic: str, identity: int | None) -> str:
    return sha256(f"{name_in_kafka(topic)}#{identity or 0}".encode()).hexdigest()[:16]
