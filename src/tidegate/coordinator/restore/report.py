"""The restore report: each source, transform and sink of the job file against its state.

Pure. The verdict is impossible if state has no owner or its owner has changed, and needs consent if
rows would be written twice.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.checkpoints.operator_identity import IDENTITY, differences, identity_of
from tidegate.model.errors import UserError
from tidegate.model.job import BlockKind
from tidegate.model.plan import Action, Delivery, Plan
from tidegate.model.restore import OperatorReport, PipelineReport, RestoreReport, Verdict
from tidegate.plugin import registry
from tidegate.plugin.connector import GoBack
from tidegate.plugin.secret import unpacked

NOT_ASKED = "asked when the driver starts"
PositionProbe = Callable[[Action, Any], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineRestore:
    """The restore point of one pipeline.

    `states` are those of its checkpoint, by operator; `snapshot` are the operators that have state,
    also before the first checkpoint.
    """

    report: PipelineReport
    states: Mapping[str, Any]
    snapshot: frozenset[str]
    finished: bool = False
    pending: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StateDifference:
    """State that does not match the job file.

    `operator` owns it, and its state can be dropped. `sink`: a fork writes to other targets, so
    this is expected.
    """

    operator: str
    text: str
    sink: bool = False


def report_of(
    base: RestoreReport,
    plan: Plan,
    before: Plan | None,
    places: Mapping[int, PipelineRestore],
    *,
    drop: bool,
    consent: bool,
    probe: PositionProbe | None,
) -> RestoreReport:
    """Build the restore report.

    `drop`: state without an owner may be dropped; `consent`: rows may be written twice; `probe`
    asks a source about a position.
    """
    found = list(state_differences(plan, places))
    given_up = [each for each in found if drop or (base.fork and each.sink)]
    dropped = tuple(sorted({each.operator for each in given_up}))
    found = [each for each in found if each not in given_up]
    problems = tuple(dict.fromkeys(each.text for each in found))
    operators = tuple(
        _operator(
            action, pipeline.id, places.get(pipeline.id), _before(before, action), dropped, probe
        )
        for pipeline in plan.pipelines
        for action in pipeline.actions
    )
    misfit = {each.operator: each.text for each in found}
    operators = tuple(
        replace(each, problem=misfit[each.operator]) if each.operator in misfit else each
        for each in operators
    )
    consents = () if consent else tuple(_consents(plan, places))
    notes = [*base.notes, *(note for place in places.values() for note in place.notes)]
    notes += [f"the state of {operator} is dropped" for operator in dropped]
    report = replace(
        base,
        pipelines=tuple(p.report for p in places.values()),
        operators=operators,
        dropped_operators=dropped,
        problems=problems,
        consents=consents,
        notes=tuple(notes),
    )
    return replace(report, verdict=_verdict(report))


def state_differences(
    plan: Plan, places: Mapping[int, PipelineRestore]
) -> Iterator[StateDifference]:
    """Yield state without an owner, and state whose owner now reads or writes something else."""
    owners = {
        action.operator: (pipeline.id, action)
        for pipeline in plan.pipelines
        for action in pipeline.actions
    }
    for number, place in places.items():
        for operator in sorted(place.snapshot):
            state = place.states.get(operator)
            sink = isinstance(state, Mapping) and "offset" not in state
            identity = state.get(IDENTITY) if isinstance(state, Mapping) else None
            yield from (
                StateDifference(operator=operator, text=text, sink=sink)
                for text in _misfit(operator, number, identity, owners.get(operator))
            )


def _misfit(
    operator: str,
    pipeline: int,
    identity: Mapping[str, str] | None,
    owner: tuple[int, Action] | None,
) -> Iterator[str]:
    if owner is None:
        yield f"{operator} has state in the unfinished run and is no longer in the job file"
    elif owner[0] != pipeline:
        yield f"{operator} has moved from pipeline {pipeline} to pipeline {owner[0]}"
    elif identity:
        yield from (f"{operator}: {text}" for text in differences(identity, identity_of(owner[1])))


def _verdict(report: RestoreReport) -> Verdict:
    if report.problems:
        return Verdict.IMPOSSIBLE
    if report.consents:
        return Verdict.CONSENT
    return (
        Verdict.REPLAY
        if any(p.replays_rows or p.rewind for p in report.pipelines)
        or any(o.replays for o in report.operators)
        else Verdict.OK
    )


def _operator(
    action: Action,
    pipeline: int,
    place: PipelineRestore | None,
    before: Action | None,
    dropped: tuple[str, ...],
    probe: PositionProbe | None,
) -> OperatorReport:
    state = place.states.get(action.operator) if place and action.operator not in dropped else None
    return OperatorReport(
        operator=action.operator,
        kind=action.kind.value,
        pipeline=pipeline,
        resumes=_resumes(action, place, state is not None),
        replays=_replays(action, place) if place else "",
        changes=_changes(action, before),
        held=_position_status(action, state, place, probe)
        if action.kind is BlockKind.SOURCE
        else "",
    )


def _resumes(action: Action, place: PipelineRestore | None, stateful: bool) -> str:
    if place is not None and place.finished:
        return "nothing: its pipeline has finished"
    if place is None or not place.report.checkpoint:
        return "its beginning"
    if action.kind is BlockKind.TRANSFORM:
        return "nothing: it keeps no state"
    if stateful:
        return f"checkpoint {place.report.checkpoint}"
    return (
        "its beginning"
        if action.kind is BlockKind.SOURCE
        else f"rows after checkpoint {place.report.checkpoint}: it is new"
    )


def _replays(action: Action, place: PipelineRestore) -> str:
    report = place.report
    if action.kind is BlockKind.SOURCE:
        return f"{report.replays_rows} rows are read again" if report.replays_rows else ""
    if action.kind is not BlockKind.SINK or not (
        report.replays_rows or report.rewind or place.pending
    ):
        return ""
    way = go_back(action)
    if not report.rewind:
        if way is GoBack.DUPLICATE and action.delivery is not Delivery.EXACTLY_ONCE:
            return "rows that it has may be written again"
        return "batches that it has are recognised, and skipped" if report.replays_rows else ""
    return {
        GoBack.REWIND: f"rewind: what is newer than checkpoint {report.checkpoint} is rolled back",
        GoBack.REPLAY: "replay: rows are written again, and converge by their key",
        GoBack.DUPLICATE: "duplicate: rows that it has are written again",
    }[way]


def _consents(plan: Plan, places: Mapping[int, PipelineRestore]) -> Iterator[str]:
    for pipeline in plan.pipelines:
        place = places.get(pipeline.id)
        if place is None or not place.report.rewind or not place.report.replays_rows:
            continue
        for action in pipeline.of_kind(BlockKind.SINK):
            if go_back(action) is GoBack.DUPLICATE:
                rows, checkpoint = place.report.replays_rows, place.report.checkpoint
                yield (
                    f"{action.operator} cannot roll rows back: up to {rows} rows after checkpoint"
                    f" {checkpoint} will be written twice"
                )


def _changes(action: Action, before: Action | None) -> tuple[str, ...]:
    """Compare with the plan that made the state; options by name only: values may be secrets."""
    if before is None:
        return ()
    changed = sorted(
        key
        for key in {*action.options, *before.options}
        if action.options.get(key) != before.options.get(key)
    )
    changes = [f"options: {', '.join(changed)}"] if changed else []
    if action.parallelism != before.parallelism:
        changes.append(f"parallelism {before.parallelism} -> {action.parallelism}")
    if action.inputs != before.inputs:
        changes.append(
            f"reads from {', '.join(action.inputs) or 'nothing'} instead of"
            f" {', '.join(before.inputs) or 'nothing'}"
        )
    return tuple(changes)


def _before(plan: Plan | None, action: Action) -> Action | None:
    return (
        next((a for p in plan.pipelines for a in p.actions if a.operator == action.operator), None)
        if plan
        else None
    )


def _position_status(
    action: Action, state: Any, place: PipelineRestore | None, held: PositionProbe | None
) -> str:
    if place is None or place.finished or not isinstance(state, Mapping) or "offset" not in state:
        return ""
    return held(action, state["offset"]) if held else NOT_ASKED


def go_back(action: Action) -> GoBack:
    """Return how a sink handles an older restore point; the worst case for an unknown plugin."""
    try:
        connector = registry.find(action.kind, action.plugin)
    except UserError:
        return GoBack.DUPLICATE
    return connector.capabilities_of(unpacked(action.options)).go_back or GoBack.DUPLICATE


def report_lines(report: RestoreReport) -> Iterator[str]:
    """Yield the report as text."""
    yield (
        f"job {report.job_id}: {report.start}"
        + (f" from {report.origin}" if report.origin else "")
        + (", as a fork with a lineage of its own" if report.fork else "")
    )
    for pipeline in report.pipelines:
        after = (
            f"after checkpoint {pipeline.checkpoint} ({pipeline.path})"
            if pipeline.checkpoint
            else "from its beginning"
        )
        again = f"; {pipeline.replays_rows} rows are read again" if pipeline.replays_rows else ""
        yield f"  pipeline {pipeline.pipeline} {after}{again}"
    for operator in report.operators:
        parts = [
            f"resumes from {operator.resumes}",
            operator.replays,
            *(f"changed: {c}" for c in operator.changes),
        ]
        parts += [
            f"position held: {operator.held}" if operator.held else "",
            f"PROBLEM: {operator.problem}" if operator.problem else "",
        ]
        yield f"  {operator.kind} {operator.operator}: " + "; ".join(text for text in parts if text)
    for heading, texts in (
        ("note", report.notes),
        ("impossible", report.problems),
        ("needs consent", report.consents),
    ):
        yield from (f"  {heading}: {text}" for text in texts)
    yield f"verdict: {report.verdict.value}"
