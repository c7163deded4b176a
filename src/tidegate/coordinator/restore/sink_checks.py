"""Queries the targets of sinks about their last checkpoint, before anything is written.

Called by planning, outside of a driver. A target that cannot be queried from here is a note in the
plan: the driver queries it again before it writes.
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.model.document import from_document
from tidegate.model.errors import TidegateError
from tidegate.model.job import BlockKind, JobMode
from tidegate.model.plan import Action, Plan
from tidegate.model.records import WORKERS, PipelineState, WorkerRecord
from tidegate.pipeline.sink_records import describe_loss, foreign_rows_warning, recorded_sinks
from tidegate.plugin import registry
from tidegate.plugin.contract import OperatorContext, SinkRestore, TargetRecord
from tidegate.plugin.secret import unpacked
from tidegate.store.base import Store

AskSink = Callable[[Plan, Action, int, SinkRestore], TargetRecord | None]
"""What a sink of this pipeline says of a lineage; raises what its target says."""


@dataclass(frozen=True, slots=True)
class SinkFindings:
    """`lost`: checkpoints that targets do not know, described; `notes`: notes for the user."""

    lost: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def ask_sink(plan: Plan, action: Action, pipeline: int, resume: SinkRestore) -> TargetRecord | None:
    """Query a sink as the driver would, from this process."""
    context = OperatorContext(
        job_id=0,
        job_name=plan.job_name,
        pipeline=pipeline,
        operator=action.operator,
        mode=plan.env.mode or JobMode.BATCH,
        parallelism=action.parallelism,
    )
    values = unpacked(action.options)
    record: TargetRecord | None = (
        registry.find(action.kind, action.plugin)
        .of(values)
        .load()(values, context)
        .committer()
        .target_record(resume)
    )
    return record


def ask_recorded(
    plan: Plan, action: Action, pipeline: int, resume: SinkRestore
) -> TargetRecord | None:
    """Query a sink only if a checkpoint is restored.

    At a fresh start the driver reports what the target contains: so no connector is loaded here.
    """
    return ask_sink(plan, action, pipeline, resume) if resume.checkpoint else None


def ask_from_here(store: Store, *, fresh: bool = False) -> AskSink:
    """Return the query function of servers.

    They query only if every worker runs on this host, since another host has other disks; at a
    fresh start only on request.
    """

    def ask(plan: Plan, action: Action, pipeline: int, resume: SinkRestore) -> TargetRecord | None:
        if not resume.checkpoint and not fresh:
            return None
        hosts = {
            from_document(WorkerRecord, entry.value, "a worker").host
            for entry in store.list(WORKERS)
        }
        return ask_sink(plan, action, pipeline, resume) if hosts == {socket.gethostname()} else None

    return ask


def fresh_findings(ask: AskSink | None, plan: Plan) -> SinkFindings:
    """Check a fresh start: rows of others in a target stay beside the new ones."""
    if ask is None:
        return SinkFindings()
    notes = []
    for pipeline in plan.pipelines:
        for action in pipeline.of_kind(BlockKind.SINK):
            found = _asked(
                ask, plan, action, pipeline.id, SinkRestore(lineage="", generation=1, checkpoint=0)
            )
            if isinstance(found, TargetRecord) and found.others:
                notes.append(f"warning: {foreign_rows_warning(found)}")
    return SinkFindings(notes=tuple(notes))


def resumed_findings(
    ask: AskSink | None,
    plan: Plan,
    states: Mapping[int, tuple[PipelineState, Mapping[str, Any]]],
    dropped: tuple[str, ...],
    generation: int,
) -> SinkFindings:
    """Check a restore; `states` are each resumed pipeline's state and that of its checkpoint."""
    lost: list[str] = []
    notes: list[str] = []
    for pipeline, action, resume in (
        _resumes(plan, states, dropped, generation) if ask is not None else ()
    ):
        assert ask is not None
        found = _asked(ask, plan, action, pipeline, resume)
        if isinstance(found, str):
            notes.append(f"{action.operator}: its target could not be queried: {found}")
        elif found is not None and found.checkpoint < resume.checkpoint:
            lost.append(describe_loss(action.operator, found, resume.checkpoint))
    return SinkFindings(tuple(lost), tuple(notes))


def _resumes(
    plan: Plan,
    states: Mapping[int, tuple[PipelineState, Mapping[str, Any]]],
    dropped: tuple[str, ...],
    generation: int,
) -> Iterator[tuple[int, Action, SinkRestore]]:
    for pipeline in plan.pipelines:
        if pipeline.id not in states or (latest := states[pipeline.id][0].latest) is None:
            continue
        state, saved = states[pipeline.id]
        expected = recorded_sinks(state, saved) - set(dropped)
        for action in pipeline.of_kind(BlockKind.SINK):
            if action.operator in expected:
                resume = SinkRestore(
                    lineage=state.lineage,
                    generation=generation,
                    checkpoint=latest.checkpoint,
                    state=saved[action.operator].get("state"),
                )
                yield pipeline.id, action, resume


def _asked(
    ask: AskSink, plan: Plan, action: Action, pipeline: int, resume: SinkRestore
) -> TargetRecord | str | None:
    """Return what the target reports; a text if it could not be queried."""
    try:
        return ask(plan, action, pipeline, resume)
    except TidegateError as error:
        return str(error)
    except Exception as error:  # whatever a connector or its server raises: the plan shows it
        return f"{type(error).__name__}: {error}"
