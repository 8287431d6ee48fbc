"""`tidelake publish`: states a collection as CDCv2 in a topic, for readers elsewhere."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tidelake.cli.application import find_jobs
from tidelake.cli.debug import is_debugging
from tidelake.cli.jobs import run_steps
from tidelake.cli.options import CONFIG, ConfigOption, JsonOption, NameArgument, SkipErrorsOption
from tidelake.cli.progress import working
from tidelake.cli.render import print_json, printable, say
from tidelake.cli.times import check_number, read_time, shown_time
from tidelake.errors import OptionRefused
from tidelake.read.words import counted

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from jobs.publish import Asked
    from tidelake.publish.publishing import PublishReport
    from tidelake.settings.lake import Settings


def publish(
    name: NameArgument,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="The topic: a folder in `topics` or, if it contains a slash, any folder or URI; with --kafka, a topic "
            "in the cluster. By default, the topic in the collection's `publish` block.",
        ),
    ] = None,
    kafka: Annotated[bool, typer.Option("--kafka", help="The topic is in Kafka; it must exist.")] = False,
    encoding: Annotated[
        Literal["avro", "confluent"],
        typer.Option(help="Bare Avro, or messages that begin with a schema id from the lake's registry."),
    ] = "avro",
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            callback=check_number,
            help="The time of the initial contents, for the first call; by default, the collection's `since`.",
        ),
    ] = None,
    shards: Annotated[
        int | None, typer.Option(min=1, max=1_000, help="Divide the data among this many publishers from now on.")
    ] = None,
    shard: Annotated[
        int | None, typer.Option(min=0, help="Publish only this shard, counted from 0; by default, all shards.")
    ] = None,
    skip_errors: SkipErrorsOption = False,
    accept_cut: Annotated[
        bool, typer.Option("--accept-cut", help="Restate the contents of messages that the topic has lost.")
    ] = False,
    with_run: Annotated[bool, typer.Option("--run", help="First ingest and seal the collection.")] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop publishing to the topic, and release its hold. Does not start a JVM.")
    ] = False,
    schema_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the schema that readers of bare Avro need.")
    ] = None,
    config: ConfigOption = CONFIG,
    as_json: JsonOption = False,
) -> None:
    """State all sealed contents and changes as CDCv2 in a topic, for readers elsewhere.

    Updates that the topic already has are not stated again. If messages begin with a schema id, a column that is added
    to the collection later is in the updates from one time onwards, which the next call determines; in bare Avro, only
    a new topic can have the column.
    """
    from tidelake.settings.lake import load_settings

    settings = load_settings(config)
    find_jobs()
    from jobs.publish import Asked, stop_publishing

    own = settings.collection(name).publish
    if to is None and own is None:
        raise OptionRefused("--to is missing", "name a topic, or add a `publish` block to the collection")
    if to is None and own is not None:
        given = {
            "--from": start is not None,
            "--shards": shards is not None,
            "--skip-errors": skip_errors,
            "--kafka": kafka and own.source != "kafka",
            "--encoding": encoding == "confluent" != own.encoding,
        }
        refused = next((option for option, is_given in given.items() if is_given), None)
        if refused is not None:
            raise OptionRefused(f"{refused} is given without --to", "give --to, or change the `publish` block")
        asked = replace(Asked.by_settings(own), shard=shard, accepts_cut=accept_cut)
    else:
        mints_times = settings.collection(name).mints_times
        first = None if start is None else read_time("--from", start, name, mints_times)
        is_confluent = encoding == "confluent"
        asked = Asked(to or "", kafka, is_confluent, first, shards, shard, skip_errors, accept_cut)
    if stop:
        stop_publishing(settings, name, asked)
        say(f"{name}: no longer published to {asked.to}; the topic stays as it is")
        return
    if with_run:
        run_steps(["ingest", "seal"], [name], config, as_json=False)
    report = _publish(settings, name, asked, schema_out)
    if as_json:
        print_json(vars(report))
        return
    typer.echo(printable(f"{name}: {_sentence(report, settings.collection(name).mints_times)}"))


def _publish(settings: Settings, name: str, asked: Asked, schema_out: Path | None) -> PublishReport:
    """Publish, and show warnings."""
    with working("starting Spark"):
        from jobs.logs import log_to
        from jobs.publish import publish_collection, schema_text, target_of
        from tidelake.catalog.catalog import Catalog
        from tidelake.spark.session import start_session
        from tidelake.store.layout import Store
        from tidelake.telemetry.start import start_telemetry
        from tidelake.telemetry.steps import stop_listening

        start_telemetry(os.environ)
        try:
            with log_to(_hear, is_debugging()):
                session = start_session(jar_sets=settings.jar_sets)
                report = publish_collection(session, settings, name, asked)
        finally:
            stop_listening()
    if schema_out is not None:
        text = schema_text(Catalog(Store(settings.store)), name, target_of(settings, asked))
        schema_out.write_text(text, encoding="utf-8")
    return report


def _hear(event: MutableMapping[str, Any]) -> None:
    if event["level"] in ("warning", "error"):
        shown = ("column", "partition", "first", "fact")
        details = ", ".join(f"{key} {event[key]}" for key in shown if key in event)
        say(printable(f"{event['level']}: {event.get('collection')}: {event['event']}: {details}"))


def _sentence(report: PublishReport, mints_times: bool) -> str:
    until = "closed" if report.closed else f"complete before time {shown_time(report.frontier, mints_times)}"
    if not report.statements:
        return f"nothing new for {report.topic}, which is {until}"
    columns = report.columns_from.items()
    until += "".join(
        f"; rows have the column '{name}' from time {shown_time(time, mints_times)} onwards" for name, time in columns
    )
    updates, messages = counted(report.updates, "update"), counted(report.messages, "message")
    return f"{updates} in {messages} to {report.topic}, which is {until}"
