"""The table of Operations has every sentence that `tidelake status` can print, and says which ones need attention."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from dataclasses import replace
from typing import Any

from tests.docs.blocks import PROJECT
from tests.expectations.reports import STATUS
from tidelake.read import verdict
from tidelake.read.verdict import PROBLEM, verdict_of
from tidelake.read.waiting import Waiting, WaitingTime
from tidelake.read.waiting_events import WaitingEvent

_OLD = {"upper_age_s": 10**9}


def contradiction(decided: bool) -> list[dict[str, Any]]:
    return [{"time": 9, "detail": "over_count: a fact", "decided": decided}]


def event(transaction: str | None, age_s: int = 0, is_by_signal: bool = False) -> dict[str, Any]:
    waiting = WaitingEvent("orders", 0, 7, transaction, age_s, is_by_signal)
    return {"waiting_transactions": [waiting.as_json()]}


MISSING = {"waiting": Waiting(11, True, [WaitingTime(11, 8, 1)])}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("damaged", {"damaged": "a file is missing"}),
    ("topic_unreadable", {"topic_problem": "the brokers do not answer"}),
    ("topic_gap", {"topic_gaps": ["offsets 3 to 5"]}),
    ("held_back", {"contradictions": contradiction(decided=False)}),
    ("decided", {"contradictions": contradiction(decided=True)}),
    ("late_contradiction", {"late_undecided": 1}),
    ("late_unreadable", {"late_problem": "late facts cannot be read: a file is missing"}),
    ("not_sealed", {"waiting": Waiting(12, False)}),
    ("updates_missing", MISSING | {"lag_messages": 3}),
    ("updates_missing", event(None)),
    ("updates_missing", event("9")),
    ("keys_in_error", {"keys_in_error": 1}),
    ("clock_ahead", {"times_ahead_s": 90_000}),
    ("published_changed", {"publication": {"problem": "Spark has written to it", "changed_by": "Spark"}}),
    ("published_damaged", {"publication": {"problem": "a file is missing"}}),
    ("in_order", {}),
]
"""For each place in the code that makes a verdict: the verdict's kind, and changes to `STATUS` that lead to it."""
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("topic_gap", {"topic_gaps": ["the topic was deleted"], "topic_gap_kind": "TopicChanged"}),
    ("topic_gap", {"topic_gaps": ["9 ends before 8"], "topic_gap_kind": "TransactionWentBack"}),
    ("damaged", {"damaged": "the file a.parquet is missing", "has_damaged_files": True}),
    ("decided", {"contradictions": contradiction(decided=True), "decided_counts": [9]}),
    ("not_sealed", {"waiting": Waiting(12, False)} | _OLD),
    ("updates_missing", MISSING | {"lag_messages": 0}),
    ("updates_missing", MISSING | {"lag_messages": 3} | _OLD),
    ("updates_missing", event(None, is_by_signal=True)),
    ("updates_missing", event("9", age_s=10**9)),
    ("in_order", _OLD),
]


def rows() -> list[tuple[re.Pattern[str], str]]:
    """A pattern for each sentence in the first column, and the cell beside it. Numbers and `T` match any number."""
    page = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    found = []
    for cell, needs in re.findall(r"^\| (`.+?`) \| (.+?) \|", page.partition("| Sentence begins with |")[2], re.M):
        for words in re.findall(r"`([^`]+)`", cell):
            found.append((re.compile(re.sub(r"\d+|\bT\b", r"[\\d,]+", re.escape(words))), needs))
    return found


def test_every_verdict_in_the_code_has_a_case() -> None:
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(verdict))) if isinstance(node, ast.Call)]
    kinds = [ast.unparse(call.args[0]).lower() for call in calls if ast.unparse(call.func) == "Verdict"]
    assert Counter(kinds) == Counter(kind for kind, _ in CASES)


def test_every_sentence_is_in_the_table_with_whether_it_needs_attention() -> None:
    needs_attention: dict[tuple[re.Pattern[str], str], set[bool]] = {}
    for kind, change in (*CASES, *VARIANTS):
        found = verdict_of(replace(STATUS, **change))
        assert found.kind == kind
        matching = [row for row in rows() if row[0].match(found.sentence)]
        assert len(matching) == 1, found.sentence
        needs_attention.setdefault(matching[0], set()).add(found.severity == PROBLEM)
    for (words, shown), needs in needs_attention.items():
        assert needs == {"yes": {True}, "no": {False}}.get(shown, {True, False}), words.pattern
