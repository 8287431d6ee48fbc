"""Dagster's checks: for each expectation, a validation reports an asset check of the collection, before any merge.

The step `validate` recounts once and reports all checks of a collection. A blocking check that fails stops what is
downstream of the collection: the step `compact`, `current`, and users' own assets. `compact` merges if the options of
the run ask for it. Checks can be run by hand, alone or together; such a run merges nothing.
"""

import time as clock
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    In,
    MetadataValue,
    Nothing,
    OpDefinition,
    OpExecutionContext,
    Out,
    op,
)

from assets.metadata import listed
from assets.names import Names
from assets.options import RunOptions
from assets.steps import STOPPED, Lake, compact_now, failure_of, lake_of, opened, options_of, step_of
from assets.topics import TopicState, read_topic_states
from expectations.data_docs import INDEX
from expectations.judge import Verdict
from expectations.sentences import failure_of as what_failed_in
from expectations.sentences import sentence_of, times_of
from expectations.suite import Rule, rules_of
from tidelake.errors import DamagedTable, SourceError
from tidelake.read.verdict import NOT_SEALED, UPDATES_MISSING, problems_of
from tidelake.report.files import address_of
from tidelake.settings.collection import CollectionSettings

if TYPE_CHECKING:
    import pandas as pd

    from tidelake.read.status import CollectionStatus
    from tidelake.store.entry import Collection
    from tidelake.validate.validation import ValidateReport

TOPIC_COMPLETE = "topic_complete"
"""The check that fails if offsets are missing, a topic cannot be read, or the last ingest did not reach the end."""
UPDATES_ARRIVE = "announced_updates_arrive"
"""The check that fails if announced updates are missing for too long, or from a topic that was read to its end."""
HOLDS_END = "holds_end"
"""The check that warns of a hold that is older than `hold_age_max_s`."""
MERGES_KEEP_CONTENTS = "merges_keep_contents"
"""The check of the compaction: a merge that would change the contents commits nothing."""
_HOLDS_END_SAYS = (
    "No hold is older than `hold_age_max_s`. While a hold lives, compaction forgets nothing at or after its time."
)
_INPUT = "collection"
_ALL, _AGAIN = "all_", "again_"
"""Prefixes of the names of numbers that depend on how much was validated: everything, or all from a chosen time on.

Without a prefix, only new times were validated.
"""
_INT64_MAX = 2**63 - 1
_COUNTS = ("times", "announced", "counted", "recounted")
_OWN_NUMBERS = {
    "announced_is_counted": _COUNTS,
    "announced_is_recounted": _COUNTS,
    "sum_of_diffs_is_as_recorded": ("diff_sum",),
    "rows_are_as_recorded": ("hash_mismatches", "times_hash", "contents_hash"),
    "contents_never_fall": ("times", "diff_sum"),
    "nothing_accumulates_below_zero": ("below_zero", "diff_sum"),
    "nothing_is_contradicted": ("contradictions",),
    "no_key_is_in_error": ("keys_in_error",),
    "late_statements_are_copies": (
        "late_statements",
        "late_copies",
        "late_contradictions",
        "late_contradictions_undecided",
        "late_unverifiable",
    ),
    "quarantine_is_explained": ("quarantined", "quarantined_unexplained"),
    "frontier_moves": ("frontier_age_s",),
}
"""The numbers that only some checks show, by check. The UI sorts numbers by name; a short list is easier to read."""


def validation_specs(names: Names, settings: CollectionSettings) -> list[AssetCheckSpec]:
    """Return the checks of a collection, in the order in which they are shown."""
    key = names.collection(settings.name)
    complete = "No offset of the topic is missing. If one is, ingest stops before it, and skips nothing."
    arrive = (
        "All announced updates have arrived. If one is missing, `upper` waits for it; what is sealed does not change."
    )
    return [
        AssetCheckSpec(TOPIC_COMPLETE, asset=key, description=complete),
        *([] if settings.mints_times else [AssetCheckSpec(UPDATES_ARRIVE, asset=key, description=arrive)]),
        AssetCheckSpec(HOLDS_END, asset=key, description=_HOLDS_END_SAYS),
        *(
            AssetCheckSpec(rule.name, asset=key, description=_sentence(rule), blocking=rule.blocking)
            for rule in rules_of(settings)
        ),
    ]


def merges_key(names: Names, name: str) -> AssetCheckKey:
    """Return the key of the check of a collection's compaction."""
    return AssetCheckKey(names.current(name), MERGES_KEEP_CONTENTS)


def checks_of(names: Names, settings: CollectionSettings) -> list[AssetCheckKey]:
    """Return the keys of all checks that a tick of a collection evaluates."""
    return [*(spec.key for spec in validation_specs(names, settings)), merges_key(names, settings.name)]


def build_checks(names: Names, settings: CollectionSettings) -> list[AssetChecksDefinition]:
    """Build the checks of a collection, and the compaction that waits for them.

    The check of the compaction belongs to the asset `current`: like everything downstream of the collection, it does
    not run if a blocking check has failed.
    """
    key = names.collection(settings.name)
    specs = {spec.name: spec for spec in validation_specs(names, settings)}
    merges = AssetCheckSpec(
        MERGES_KEEP_CONTENTS,
        asset=names.current(settings.name),
        additional_deps=[key],
        description="The last merges kept the contents. A merge that would change them commits nothing and fails.",
    )
    validate: AssetChecksDefinition = AssetChecksDefinition.create(
        keys_by_input_name={_INPUT: key},
        node_def=_build_validate(names, settings, list(specs)),
        check_specs_by_output_name=specs,
        can_subset=True,
    )
    compact: AssetChecksDefinition = AssetChecksDefinition.create(
        keys_by_input_name={_INPUT: key},
        node_def=_build_compact(names, settings),
        check_specs_by_output_name={MERGES_KEEP_CONTENTS: merges},
        can_subset=False,
    )
    return [validate, compact]


def _build_validate(names: Names, settings: CollectionSettings, checks: list[str]) -> OpDefinition:
    @op(
        name=names.step(settings.name, "validate"),
        description="Recounts independently of seal, and validates the result against the suite.",
        ins={_INPUT: In(Nothing)},
        out={name: Out(Nothing, is_required=False) for name in checks},
        pool=names.pool(settings.name),
        required_resource_keys={names.resource, names.options},
    )
    def validate(context: OpExecutionContext) -> Iterator[AssetCheckResult]:
        options = options_of(context, names)
        if not options.selects(settings.name):
            context.log.info("not selected by the options of this run")
            return
        chosen = {check.name for check in context.selected_asset_check_keys}
        with step_of(context, options), opened(lake_of(context, names), settings.name) as collection:
            results = list(_results(context, names, settings, collection))
        yield from (result for result in results if result.check_name in chosen)

    return validate


def _build_compact(names: Names, settings: CollectionSettings) -> OpDefinition:
    @op(
        name=names.step(settings.name, "compact"),
        description=(
            "**Forgets.** Moves `since` according to the retention rule, then merges data files: within a budget in "
            "every tick, and all sealed rows in the nightly job. Reads at or after `since` give the same results."
        ),
        ins={_INPUT: In(Nothing)},
        out={MERGES_KEEP_CONTENTS: Out(Nothing, is_required=False)},
        pool=names.pool(settings.name),
        required_resource_keys={names.resource, names.options},
    )
    def compact(context: OpExecutionContext) -> Iterator[AssetCheckResult]:
        options = options_of(context, names)
        if not options.selects(settings.name) or not (options.compact or options.compact_all):
            context.log.info("not requested by the options of this run")
            return
        numbers: dict[str, Any] = {}
        refused: DamagedTable | None = None
        with step_of(context, options):
            try:
                numbers = compact_now(context, names, settings.name, options.compact_all)
            except DamagedTable as error:
                refused = error
        yield AssetCheckResult(
            passed=refused is None,
            asset_key=names.current(settings.name),
            check_name=MERGES_KEEP_CONTENTS,
            description=None if refused is None else str(refused),
            metadata=numbers,
        )
        if refused is not None:
            raise failure_of(refused)

    return compact


def _results(
    context: OpExecutionContext, names: Names, settings: CollectionSettings, collection: "Collection"
) -> Iterator[AssetCheckResult]:
    """Return the results of all checks of a validation."""
    from jobs.pages import unreadable_errors

    lake, options, key = lake_of(context, names), options_of(context, names), names.collection(settings.name)
    topics = _read_topics(lake.settings_of(settings.name), collection)
    yield _topic_complete(context, key, topics)
    yield _holds_end(key, collection, lake.settings_of(settings.name))
    rules = rules_of(settings)
    try:
        validated = _validate(lake, settings.name, collection, options)
    except unreadable_errors() as error:
        context.log.exception("the recount could not read the table")
        if not settings.mints_times:
            yield AssetCheckResult(
                asset_key=key,
                check_name=UPDATES_ARRIVE,
                passed=False,
                severity=AssetCheckSeverity.ERROR,
                description=f"could not be judged: {error}",
            )
        for rule in rules:
            yield _unanswered(key, rule, error)
        return
    if not settings.mints_times:
        yield _updates_arrive(key, replace(validated.status, lag_messages=topics.lag_messages))
    by_check = {verdict.check: verdict for verdict in validated.verdicts}
    for rule in rules:
        yield _answered(key, rule, by_check[rule.name], validated)


@dataclass(frozen=True)
class _Topics:
    """The topics of a collection, as far as they can be read."""

    states: list[TopicState]
    problem: str | None = None
    """Why a topic cannot be read."""

    @property
    def lag_messages(self) -> int | None:
        """Number of unread messages; None if it is unknown."""
        return None if self.problem else sum(state.unread for state in self.states)


def _read_topics(settings: CollectionSettings, collection: "Collection") -> _Topics:
    try:
        return _Topics(read_topic_states(settings, collection))
    except SourceError as error:
        return _Topics([], str(error))


def _topic_complete(context: OpExecutionContext, key: AssetKey, topics: _Topics) -> AssetCheckResult:
    """Judge whether the topics can be read, no offset is missing, and nothing stopped the last ingest."""
    gaps = [gap for state in topics.states for gap in state.gaps]
    problem = topics.problem or (str(gaps[0]) if gaps else _stopped(context, key))
    metadata: dict[str, Any] = {"offsets_missing": sum(gap.to_offset - gap.from_offset for gap in gaps)}
    if topics.lag_messages is not None:
        metadata["lag_messages"] = topics.lag_messages
    if gaps:
        metadata["where"] = listed([gap.fact for gap in gaps])
    return AssetCheckResult(
        passed=problem is None,
        asset_key=key,
        check_name=TOPIC_COMPLETE,
        severity=AssetCheckSeverity.ERROR,
        description=problem,
        metadata=metadata,
    )


def _updates_arrive(key: AssetKey, status: "CollectionStatus") -> AssetCheckResult:
    """Judge whether upper is waiting for updates that will not arrive by themselves, or for a seal that never runs."""
    missing = next((found for found in problems_of(status) if found.kind in (UPDATES_MISSING, NOT_SEALED)), None)
    first = None if status.waiting is None else status.waiting.first_missing
    metadata: dict[str, Any] = {"updates_missing": 0 if first is None else first.missing}
    if first is not None:
        metadata["first_time"] = str(first.time)
    return AssetCheckResult(
        passed=missing is None,
        asset_key=key,
        check_name=UPDATES_ARRIVE,
        severity=AssetCheckSeverity.ERROR,
        description=None if missing is None else f"{missing.sentence}. `tidelake explain {status.name}` says more.",
        metadata=metadata,
    )


def _holds_end(key: AssetKey, collection: "Collection", settings: CollectionSettings) -> AssetCheckResult:
    """Judge the age of the holds."""
    from tidelake.read.holding import held_too_long

    old = held_too_long(collection, settings.hold_age_max_s)
    live = sum(capability.hold is not None for capability in collection.entry.capabilities)
    metadata: dict[str, Any] = {"holds": live, "holds_too_old": len(old)}
    if old:
        metadata["which"] = listed(old)
    return AssetCheckResult(
        passed=not old,
        asset_key=key,
        check_name=HOLDS_END,
        severity=AssetCheckSeverity.WARN,
        description=f"{old[0]}. `tidelake holds {settings.name}` says what it costs." if old else None,
        metadata=metadata,
    )


def _stopped(context: OpExecutionContext, key: AssetKey) -> str | None:
    """Return why the last ingest stopped, according to the collection's newest materialization; None if it did not."""
    event = context.instance.get_latest_materialization_event(key)
    materialization = event.asset_materialization if event is not None else None
    stopped = materialization.metadata.get(STOPPED) if materialization is not None else None
    return None if stopped is None else str(stopped.value)


@dataclass(frozen=True)
class _Validated:
    """The result of a validation: the verdicts, the numbers that checks show, and the evidence by check."""

    verdicts: list[Verdict]
    status: "CollectionStatus"
    numbers: dict[str, Any]
    evidence: dict[str, list[str]]
    frame: "pd.DataFrame"
    """The frame that was judged; see `result_frame`."""
    prefix: str
    """The prefix of the names of those numbers that depend on how much was validated."""


def _validate(lake: Lake, name: str, collection: "Collection", options: RunOptions) -> _Validated:
    """Recount and judge.

    Raises:
        DamagedTable: the proofs cannot be read. The damage is recorded, so `current` stops as well.
    """
    from jobs.pages import judge_and_report, report_unreadable
    from jobs.validate import validate_collection

    settings, full = lake.settings_of(name), options.validate_all
    started = clock.monotonic()
    try:
        report = validate_collection(
            lake.session(), collection, full, settings.verify_every_days, options.validate_from
        )
    except Exception as error:
        if full:
            report_unreadable(lake.settings, settings, collection, error)
        raise
    judged = judge_and_report(lake.session(), lake.settings, settings, collection, report, full)
    if judged is None:
        assert report.proofs_problem is not None
        raise report.proofs_problem
    prefix = _ALL if full else _AGAIN if options.validate_from is not None else ""
    numbers = _numbers(report, judged.status, judged.judgement.frame, prefix)
    numbers[f"{prefix}validate_s"] = round(clock.monotonic() - started, 3)
    if judged.judgement.decided:
        numbers["decided"] = listed(judged.judgement.decided)
    if judged.page is not None:
        numbers["report"] = MetadataValue.url(judged.page.uri)
        numbers["data_docs"] = MetadataValue.url(address_of(lake.settings.data_docs, INDEX))
    judgement = judged.judgement
    return _Validated(judgement.verdicts, judged.status, numbers, judgement.evidence, judgement.frame, prefix)


def _numbers(report: "ValidateReport", status: "CollectionStatus", frame: Any, prefix: str) -> dict[str, Any]:
    """Return the numbers of a validation.

    Numbers that depend on how much was validated have other names in full validations, and in validations from a chosen
    time on, so that the line that the UI plots for new times does not jump.
    """
    total = frame.iloc[-1]
    numbers: dict[str, Any] = {
        f"{prefix}times": len(report.times),
        f"{prefix}announced": int(total["announced"]),
        f"{prefix}counted": int(total["counted"]),
        f"{prefix}recounted": int(total["recounted"]),
        "range": f"[{report.lower}, {report.upper})",
        "upper": report.upper,
        "diff_sum": report.diff_sum_recorded,
        "sealed_by_decision": len(status.sealed_by_decision),
        "contradictions": int(total["contradictions"]),
        "late_statements": status.late,
        "late_copies": status.late_verdicts["copy"],
        "late_contradictions": status.late_contradicted,
        "late_contradictions_undecided": status.late_undecided,
        "late_unverifiable": status.late_verdicts["untold"],
        "quarantined": status.quarantine,
        "quarantined_unexplained": int(total["quarantine_unexplained"]),
        "below_zero": report.below_zero,
        "keys_in_error": status.keys_in_error,
        "frontier_age_s": int(total["frontier_age_s"]),
        "hash_mismatches": len(report.hash_mismatches),
        "times_hash": report.times_hash,
        "contents_hash": report.contents_hash,
        "table_version": str(report.version),
    }
    # Dagster's event log holds 64-bit integers; larger numbers are shown as text.
    return {
        name: value if isinstance(value, str) or abs(value) <= _INT64_MAX else str(value)
        for name, value in numbers.items()
        if value is not None
    }


def _shown_by(check: str, validated: _Validated) -> dict[str, Any]:
    """Return the numbers of one check: its own, and those that every check shows."""
    own = _OWN_NUMBERS.get(check, ())
    others = {name for names in _OWN_NUMBERS.values() for name in names} - set(own)
    hidden = {*others, *(f"{validated.prefix}{name}" for name in others)}
    return {name: value for name, value in validated.numbers.items() if name not in hidden}


def _answered(key: AssetKey, rule: Rule, verdict: Verdict, validated: _Validated) -> AssetCheckResult:
    prefix, evidence = validated.prefix, validated.evidence.get(rule.name, [])
    metadata = {
        f"{prefix}rows_compared": verdict.rows,
        f"{prefix}rows_failed": verdict.failed,
        **_shown_by(rule.name, validated),
    }
    if verdict.note is not None:
        metadata["note"] = verdict.note
    if evidence:
        metadata = {"evidence": listed(evidence), **metadata}
    if verdict.times and rule.blocking:
        metadata["failed_at_times"] = MetadataValue.json(verdict.times)
    return AssetCheckResult(
        asset_key=key,
        check_name=rule.name,
        passed=verdict.passed,
        severity=_severity(rule),
        description=(
            sentence_of(rule, verdict, validated.frame) if verdict.passed else _what_failed(rule, verdict, evidence)
        ),
        metadata=metadata,
    )


def _what_failed(rule: Rule, verdict: Verdict, evidence: list[str]) -> str:
    if verdict.problem is not None:
        return f"could not be judged: {verdict.problem}"
    if rule.is_own:
        return what_failed_in(rule, verdict)
    at = [f"fails at {times_of(verdict)}"] if verdict.times and rule.blocking else []
    return "; ".join([*evidence[:1], *at, f"expected: {rule.description}"])


def _unanswered(key: AssetKey, rule: Rule, error: BaseException) -> AssetCheckResult:
    """Fail the check: a table that cannot be read proves nothing, so nothing may be built on it."""
    return AssetCheckResult(
        asset_key=key,
        check_name=rule.name,
        passed=False,
        severity=_severity(rule),
        description=f"could not be judged: the table cannot be read: {str(error).splitlines()[0]}",
        metadata={"error": MetadataValue.text(str(error)[:4000])},
    )


def _severity(rule: Rule) -> AssetCheckSeverity:
    return AssetCheckSeverity.WARN if rule.warning else AssetCheckSeverity.ERROR


def _sentence(rule: Rule) -> str:
    return f"{rule.description[0].upper()}{rule.description[1:]}."
