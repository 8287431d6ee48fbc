"""MkDocs hook: generates the tables of the reference from the code, wherever a page has `<!-- reference: NAME -->`.

The settings come from the pydantic models and the text below each field, the commands from the typer app, and the
variables from the module that reads them. `python docs/hooks/reference.py NAME` prints a table.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

if TYPE_CHECKING:
    import click
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from tidelake.telemetry.exposition import Metric

PROJECT = Path(__file__).parents[2]
for _folder in (PROJECT, PROJECT / "src"):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

_MARK = re.compile(r"<!-- reference: ([a-z_.]+) -->")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Fill in the tables."""
    return fill(markdown)


def fill(markdown: str) -> str:
    """Return the text with a table in place of each mark."""
    return _MARK.sub(lambda found: TABLES[found.group(1)](), markdown)


# Settings


def top_level_settings() -> str:
    """Return a table of the settings at the top level."""
    return "\n".join([*_HEAD, *TOP_LEVEL])


TOP_LEVEL = (
    "| `lake` | text | the name of the file's folder; if the file is not `collections.yaml`, the file's own name | The "
    "name of the lake, which the keys of its assets in Dagster begin with: at most 63 letters, digits and `_`, "
    "beginning with a letter. |",
    "| `store` | path or URI | `data/store` | The folder of the tables: on this machine, or in S3 "
    "(`s3://bucket/folder`). Only Tidelake writes to it. |",
    "| `s3` | block | none | How S3 is reached, for `store`, `topics` and `data_docs`: see [S3](#s3). |",
    "| `untested_stores` | `allow` | none | Accept `gs:`, `az:` and `abfss:` URIs, on which "
    "[no test has ever run](../guides/s3.md#other-object-stores). |",
    "| `topics` | path or URI | `data/topics` | The folder of the file topics: on this machine, or in S3. |",
    "| `data_docs` | path or URI | `data/data_docs` | The folder of the [report](../reports.md#the-report): on this "
    "machine, or in S3. |",
    "| `kafka` | block | none | The cluster of the collections with `source: kafka`: see [Kafka](#kafka). |",
    "| `registry` | block | none | The registry that has the schemas of Avro topics: see [Registry](#registry). |",
    "| `parallel` | number | 1 | Maximum number of collections that the jobs work on at a time, at most 64: see "
    "[Many collections](../operations.md#many-collections). |",
    "| `collection_limit_s` | seconds | none; with `--linger`, 300 | How long the jobs may work on one collection in a "
    "run. After that, its Spark jobs are cancelled, and the other collections continue. |",
    "| `alerts` | `{env: VARIABLE}` or `{file: PATH}` | none | Where a webhook's URL is kept: see "
    "[Alerts](../operations.md#alerts). |",
    "| `writer` | text, or `{env: VARIABLE}` | none | The name of the processes that write with these settings: see "
    "[Fenced](../operations.md#fenced). |",
    "| `collections` | blocks | none | A block for each collection, under its name: at most 63 lower-case "
    "letters, digits and `_`, beginning with a letter. |",
)


def collection_settings() -> str:
    """Return a table of the keys of a collection: first those for every framing, then those for only some."""
    from tidelake.settings.collection import CollectionSettings
    from tidelake.settings.framings import SETTINGS
    from tidelake.settings.terms import ENVELOPES

    rows = settings_rows(CollectionSettings)
    for kind in SETTINGS.values():
        rows = settings_rows(kind) | rows
    texts = field_texts(CollectionSettings)
    families = (terms.family for terms in ENVELOPES.values())
    rows |= {
        "framing": f"| `framing` | {_choice(SETTINGS)} | `cdcv2` | {texts['framing']} |",
        "envelope": f"| `envelope` | {_choice(ENVELOPES)} | required without `family` | {texts['envelope']} |",
        "family": f"| `family` | {_choice(families)} | that of `envelope` | Another name for `envelope`. |",
    }
    first = ["envelope", "family", "framing"]
    return "\n".join([*_HEAD, *(rows[name] for name in dict.fromkeys([*first, *rows]))])


def _choice(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def kafka_settings() -> str:
    """Return a table of the keys of the `kafka` block."""
    from tidelake.settings.kafka import KafkaSettings

    return settings_table(KafkaSettings)


def registry_settings() -> str:
    """Return a table of the keys of the `registry` block."""
    from tidelake.settings.registry import RegistrySettings

    return settings_table(RegistrySettings)


def publish_settings() -> str:
    """Return a table of the keys of a collection's `publish` block."""
    from tidelake.settings.publish import PublishSettings

    return settings_table(PublishSettings)


def current_settings() -> str:
    """Return a table of the keys of a collection's `current` block."""
    from tidelake.settings.current import CurrentSettings

    return settings_table(CurrentSettings)


def s3_settings() -> str:
    """Return a table of the keys of the `s3` block."""
    from tidelake.settings.object_store import S3Settings

    return settings_table(S3Settings)


_HEAD = ("| Key | Value | Default | Meaning |", "|---|---|---|---|")
_WRITTEN = {"value_schema": "schema", "topics": "topic"}
_NOT_WRITTEN = frozenset(("name", "topics_folder", "kafka", "registry"))
_VALUES = {
    "topic": "text or list",
    "key": "text or list",
    "owners": "text or list",
    "metadata": "list or mapping",
    "schema": "path or mapping",
    "key_schema": "path or mapping",
}
"""What a user may write, where that is more than the type of the field."""
_DEFAULTS = {"table": "taken from `topic`"}
"""The defaults of fields that the reader of the settings always fills in."""


def settings_table(model: type[BaseModel]) -> str:
    """Return a table of the keys that a user may write."""
    return "\n".join([*_HEAD, *settings_rows(model).values()])


def settings_rows(model: type[BaseModel]) -> dict[str, str]:
    """Return the rows of the table of a model's keys, by key."""
    rows, texts = {}, field_texts(model)
    for field, info in model.model_fields.items():
        if field not in _NOT_WRITTEN:
            key = _WRITTEN.get(field, field)
            values = _VALUES.get(key) or values_of(info.annotation)
            default = _DEFAULTS.get(key) or default_of(info)
            rows[key] = f"| `{key}` | {values} | {default} | {texts.get(field, '')} |"
    return rows


@cache
def field_texts(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each field of a model and of its parent classes, as one line."""
    texts: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if not parent.__module__.startswith("tidelake."):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(parent))).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in zip(definition.body, definition.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                texts[field.target.id] = " ".join(str(text.value.value).split()).replace("|", "\\|")
    return texts


def values_of(annotation: Any) -> str:
    """Describe in words what a user may write for a type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(values_of(member) for member in arguments if member is not NoneType))
    if origin is tuple:
        return "list"
    if origin is dict or annotation is dict:
        return "mapping"
    name = str(getattr(annotation, "__name__", annotation))
    words = {
        "str": "text",
        "int": "integer",
        "Path": "path",
        "bool": "`true` `false`",
        "Secret": "secret",
        "timedelta": "duration",
        "PublishSettings": "block",
        "CurrentSettings": "block",
        "RowRetention": "block",
    }
    return words.get(name, name)


def default_of(field: FieldInfo) -> str:
    """Return a field's default as a user would write it."""
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default or default == 0 else "none"


# The command line


def commands() -> str:
    """Return the sections of all commands, with their arguments and options."""
    import typer

    from tidelake.cli.app import app

    sections = (command_text(path, command) for path, command in walk(typer.main.get_command(app)))
    return "\n\n".join(section for section in sections if section)


def walk(
    command: click.Command, path: tuple[str, ...] = ("tidelake",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all subcommands of a command, with their full names, but not the command itself."""
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield (*path, name), child
            yield from walk(child, (*path, name))


def command_text(path: tuple[str, ...], command: click.Command) -> str:
    """Return the section of one command."""
    name = " ".join(path)
    parts = [f"## {name} {{ #{'-'.join(path)} }}", prose(command.help or "")]
    if hasattr(command, "commands") and not command.params:
        return "\n\n".join(parts)
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join([name, *(["[OPTIONS]"] if options else []), *map(metavar_of, arguments)])
    parts.append(f"```text\n{usage}\n```")
    if any(map(help_of, arguments)):
        rows = [f"| `{metavar_of(argument)}` | {help_of(argument)} |" for argument in arguments]
        parts.append("\n".join(["| Argument | Meaning |", "|---|---|", *rows]))
    if options:
        rows = [
            f"| `{'`, `'.join(option.opts)}` | {option_values(option)} | {option_default(option)} | {help_of(option)} |"
            for option in options
        ]
        parts.append("\n".join(["| Option | Value | Default | Meaning |", "|---|---|---|---|", *rows]))
    return "\n\n".join(parts)


def help_of(parameter: click.Parameter) -> str:
    """Return the help text of an argument or option as a table cell."""
    return prose(getattr(parameter, "help", None) or "")


def metavar_of(argument: click.Parameter) -> str:
    """Return an argument as the usage line shows it."""
    return str(getattr(argument, "metavar", None) or (argument.name or "").upper())


def option_values(option: click.Parameter) -> str:
    """Describe what may be written after an option."""
    if getattr(option, "is_flag", False):
        return ""
    choices = getattr(option.type, "choices", None)
    if choices:
        return " ".join(f"`{getattr(value, 'value', value)}`" for value in choices)
    return {"integer range": "integer", "float range": "number", "float": "number", "filename": "path"}.get(
        option.type.name, option.type.name
    )


def option_default(option: click.Parameter) -> str:
    """Return the value that applies without the option."""
    default = getattr(option.default, "value", option.default)
    if option.required:
        return "required"
    if default is None or default is False or default == () or default == []:
        return ""
    return f"`{default}`"


def prose(text: str) -> str:
    """Return a help text on one line; characters that a table cell cannot hold are escaped."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# Errors


def errors() -> str:
    """Return a table of all errors, each with a link to its page, grouped by who has to act."""
    from tidelake.runbook.page import pages

    rows = ["| Family | Error | Meaning | Exit status |", "|---|---|---|---|"]
    rows += [
        f"| `{page.family}` | [`{page.name}`](errors/{page.slug}.md) | {prose(page.meaning)} | {page.exit_status[0]} |"
        for page in pages()
    ]
    return "\n".join(rows)


def families() -> str:
    """Return the table of the families of errors, taken from the docstring of `tidelake.errors`."""
    from tidelake import errors

    rows = [line.replace("`", "") for line in (errors.__doc__ or "").splitlines() if line.startswith("|")]
    head, rule, *others = rows
    cells = ([cell.strip() for cell in row.strip("|").split("|")] for row in others)
    lines = [
        f"| `{name}` | {happened[:1].upper()}{happened[1:]}. | {act[:1].upper()}{act[1:]}. |"
        for name, happened, act in cells
    ]
    return "\n".join([head.replace("family", "Family").replace("what", "What").replace("who", "Who"), rule, *lines])


# Metrics


def lake_metrics() -> str:
    """Return a table of the metrics of a lake."""
    from tidelake.telemetry.lake_metrics import METRICS

    return metrics_table(METRICS)


def step_metrics() -> str:
    """Return a table of the metrics of steps."""
    from tidelake.telemetry.step_files import METRICS

    return metrics_table(METRICS)


def metrics_table(metrics: Iterable[Metric]) -> str:
    """Return a table of metrics with their labels."""
    from tidelake.telemetry.exposition import PREFIX

    rows = [
        f"| `{PREFIX}{metric.name}` | {' '.join(f'`{label}`' for label in metric.labels)} | {prose(metric.text)} |"
        for metric in metrics
    ]
    return "\n".join(["| Metric | Labels | Meaning |", "|---|---|---|", *rows])


# The environment


def variables() -> str:
    """Return a table of the environment variables, with their defaults."""
    from orchestration.settings import CRON_VARIABLES, VARIABLES, Environment

    fields = {
        "TIDELAKE_SCHEDULES": "schedules",
        "TIDELAKE_PARALLEL_RUNS": "parallel_runs",
        **{name: field for field, name in CRON_VARIABLES.items()},
    }
    rows = ["| Variable | Default | Meaning |", "|---|---|---|"]
    for name, text in VARIABLES.items():
        default = f"`{getattr(Environment(), fields[name])}`" if name in fields else "none"
        meaning = text.partition("; by default")[0]
        rows.append(f"| `{name}` | {default} | {meaning[:1].upper()}{meaning[1:]}. |")
    return "\n".join(rows)


TABLES: dict[str, Callable[[], str]] = {
    "settings": top_level_settings,
    "settings.collection": collection_settings,
    "settings.publish": publish_settings,
    "settings.current": current_settings,
    "settings.kafka": kafka_settings,
    "settings.registry": registry_settings,
    "settings.object_store": s3_settings,
    "commands": commands,
    "errors": errors,
    "errors.families": families,
    "metrics.lake": lake_metrics,
    "metrics.steps": step_metrics,
    "variables": variables,
}
"""The functions that generate the tables, by the name in the mark."""


if __name__ == "__main__":
    print(TABLES[sys.argv[1]]())
