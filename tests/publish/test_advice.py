"""The commands that the errors of published topics advise are about the same topic."""

from __future__ import annotations

import pytest

from tidelake.errors import PublishedTopicColumns, PublishedTopicCut, PublishedTopicError, PublishedTopicRecreated


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (PublishedTopicCut, {"partition": 0, "from_offset": 3, "to_offset": 5, "is_inside": False}),
        (PublishedTopicCut, {"partition": 0, "from_offset": 3, "to_offset": 5, "is_inside": True}),
        (PublishedTopicRecreated, {"problem": "was deleted and recreated"}),
        (PublishedTopicColumns, {"columns": ("note",), "problem": "messages in bare Avro have one schema"}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_command_about_a_topic_in_kafka_has_the_option_kafka(
    error: type[PublishedTopicError], fields: dict[str, object]
) -> None:
    for source, option in (("files", ""), ("kafka", " --kafka")):
        hint = error("orders", "out", source, **fields).hint
        assert hint is not None
        commands = [part for part in hint.split("`") if part.startswith("tidelake publish orders --to ")]
        assert commands
        for command in commands:
            topic = "NEW_TOPIC" if "NEW_TOPIC" in command else "out"
            assert f"{command} --".startswith(f"tidelake publish orders --to {topic}{option} --")
