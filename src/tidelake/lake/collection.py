"""One collection of a lake: everything that a person can ask of it, or do with it."""

from __future__ import annotations

from tidelake.lake.answers import Answers
from tidelake.lake.care import Care
from tidelake.lake.holds import Holds
from tidelake.lake.reads import Reads


class LakeCollection(Reads, Holds, Answers, Care):
    """One collection of a lake. Every call reads the newest state of the store.

    If nothing has been ingested yet, `status` is None, `trace` says that the message was not read, and every other call
    raises `UnknownCollection`.
    """
