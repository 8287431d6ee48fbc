"""`tidelake trace`: the exit status, the answer in plain text, and JSON that keeps every number."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.cli.commands import call, invoke, run
from tests.lakes.lake import NAME, Lake, progress, updates


@pytest.mark.spark
def test_the_exit_status_says_whether_an_operator_must_act(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    known, held, bad, unread = (invoke("trace", NAME, "0", str(offset), *config) for offset in (0, 1, 2, 9))
    assert [done.exit_code for done in (known, held, bad, unread)] == [0, 1, 1, 0]
    assert known.stdout.startswith("prices: prices:0:0: read: updates (2 published)\n  read at: 20")
    assert "to do: decide about time 3\n" in held.stdout
    assert "to do: acknowledge it: `tidelake resolve quarantine prices --offsets prices:0:2 --reason …`\n" in bad.stdout
    assert "the topic has no such message yet; it ends at 4" in unread.stdout
    nowhere = run("trace", "price", "0", "0", *config)
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert nowhere.stderr == (
        "error: no collection reads the topic 'price'\nhint: did you mean 'prices'? These topics are read: prices\n"
        "see: tidelake errors UnknownTopic\n"
    )


@pytest.mark.spark
def test_a_trace_as_json_has_each_statement_in_a_form_that_a_discard_accepts(contradicted: Lake) -> None:
    config = ("--config", str(contradicted.file))
    contradicted.send(updates(((5, 7), 3, 2**63 - 1)), progress([9], [10], {9: 3}))
    contradicted.ingest()
    document = json.loads(invoke("trace", NAME, "0", "4", "--json", *config).stdout)
    (fate,) = document["collections"][NAME]
    (statement,) = fate["statements"]
    assert (document["topic"], document["partition"], document["offset"]) == (NAME, 0, 4)
    assert (fate["kind"], fate["needs_somebody"], statement["diff"]) == ("updates", True, 2**63 - 1)
    entered = json.dumps({"data": statement["data"], "diff": statement["diff"]})
    call("resolve", "discard", NAME, "--time", "3", "--statement", entered, "--reason", "a typo", *config)
    (fate,) = json.loads(invoke("trace", NAME, "0", "4", "--json", *config).stdout)["collections"][NAME]
    assert (fate["statements"][0]["fate"], fate["needs_somebody"]) == ("discarded", False)
    (fate,) = json.loads(invoke("trace", NAME, "0", "5", "--json", *config).stdout)["collections"][NAME]
    assert [(count["time"], count["count"], count["fate"]) for count in fate["counts"]] == [(9, 3, "pending")]


@pytest.mark.spark
def test_a_limit_shortens_the_list_of_statements_and_says_so(contradicted: Lake) -> None:
    contradicted.send(updates(*((row, 9, 1) for row in range(30))))
    contradicted.ingest()
    config = ("--config", str(contradicted.file))
    assert "20 of 30 statements; --limit shows more" in invoke("trace", NAME, "0", "4", *config).stderr
    few, every = (
        json.loads(call("trace", NAME, "0", "4", "--json", *more, *config)) for more in (["--limit", "2"], [])
    )
    assert len(few["collections"][NAME][0]["statements"]) == 2
    assert len(every["collections"][NAME][0]["statements"]) == 30


@pytest.mark.spark
def test_a_collection_that_cannot_be_read_does_not_hide_the_answer_of_another(contradicted: Lake) -> None:
    document = yaml.safe_load(contradicted.file.read_text(encoding="utf-8"))
    document["collections"]["again"] = document["collections"][NAME]
    contradicted.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    for file in contradicted.collection.paths.updates.local.rglob("*.parquet"):
        file.write_bytes(b"not parquet")
    done = invoke("trace", NAME, "0", "0", "--config", str(contradicted.file))
    assert done.exit_code == 1
    assert "error: prices: " in done.stderr
    assert "again: prices:0:0: not read yet" in done.stdout


@pytest.mark.spark
def test_what_is_to_be_done_about_a_topic_that_cannot_be_read_is_a_sentence_too(contradicted: Lake) -> None:
    contradicted.topic.rename(contradicted.topic.with_name("elsewhere"))
    done = invoke("trace", NAME, "0", "9", "--config", str(contradicted.file))
    assert "  to do: create it, or correct the topic's name\n" in done.stdout
