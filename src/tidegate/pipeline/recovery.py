"""Recovers a pipeline from its restore point: source offsets, and the sinks' committers.

Called by the batch loop, once for each attempt, before the first batch. It reads the pipeline's
state in the store, the retained checkpoints and the records of the sinks. Sinks then finish or undo
what is newer than the restore point.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidegate.checkpoints.manifest import Damaged
from tidegate.model.errors import check_same_lineage
from tidegate.model.records import PipelineState
from tidegate.pipeline.abandoned_batches import Abandoned, find_abandoned
from tidegate.pipeline.context import PipelineContext
from tidegate.pipeline.engine import Batch
from tidegate.pipeline.graph import Graph
from tidegate.pipeline.ledger import Ledger
from tidegate.pipeline.progress import PipelineProgress
from tidegate.pipeline.sink_records import (
    SinkLostRecord,
    accepted_checkpoint,
    foreign_rows_warning,
    read_target_record,
    recorded_sinks,
)
from tidegate.pipeline.source_retention import retained_offsets
from tidegate.pipeline.uncheckpointed import batches_to_repeat, initial_offsets
from tidegate.plugin.contract import CommitRange, Committer, Offset, SinkRestore

LOG = logging.getLogger("tidegate.pipeline")


@dataclass(frozen=True, kw_only=True, slots=True)
class RecoveredPipeline:
    """The offsets and open sinks with which a pipeline resumes."""

    offsets: dict[str, Offset]  # of every source
    checkpoint_offsets: dict[int, Mapping[str, Offset]]  # of the retained checkpoints
    committers: dict[str, Committer]  # open
    uncheckpointed_commits: list[CommitRange]  # batches that only the sinks know
    abandoned: Abandoned | None  # the pending batch, if it is planned anew


class PipelineRecovery:
    """One recovery of one pipeline."""

    def __init__(
        self, context: PipelineContext, graph: Graph, ledger: Ledger, progress: PipelineProgress
    ) -> None:
        self.context = context
        self.graph = graph
        self.ledger = ledger
        self.progress = progress
        self.offsets: dict[str, Offset] = {}
        self.checkpoint_offsets: dict[int, Mapping[str, Offset]] = {}
        self.warnings: list[str] = []

    def run(self) -> RecoveredPipeline:
        """Determine the offsets and open the sinks.

        All sinks are fenced and queried before the first one learns what becomes of the batches
        after the restore point.
        """
        self.progress.set_phase("restoring")
        state = self.ledger.load()
        states = self._read_checkpoints(state)
        restores = self._sink_restores(state, states)
        expected = recorded_sinks(state, states)
        self._wait_for_engine(state)
        committers = {name: sink.committer() for name, sink in self.graph.sinks.items()}
        self._check_target_records(committers, restores, expected)
        found = {
            name: committer.uncheckpointed_commits(restores[name])
            for name, committer in committers.items()
        }
        if state.latest is None:
            self._set_start_offsets({}, initial_offsets(found))
        else:
            self._set_start_offsets(self.checkpoint_offsets[state.latest.checkpoint], {})
        uncheckpointed: list[CommitRange] = []
        if not state.rewind and not state.dropped_operators:
            checkpoint = state.latest.checkpoint if state.latest else 0
            uncheckpointed = batches_to_repeat(checkpoint, self.offsets, found)
        # Before any sink rolls a row back: no checkpoint that counts it may be found again.
        self.context.storage.sweep(
            state.job_id,
            state.pipeline,
            {ref.path for ref in state.retained},
            self.ledger.generation,
            self.ledger.token,
        )
        abandoned = find_abandoned(state, self.graph, found)
        if abandoned is not None:
            restores = {
                name: replace(each, pending=None, rewind=each.rewind or abandoned.rewind)
                for name, each in restores.items()
            }
            uncheckpointed = []
        repeated = tuple(record.checkpoint for record in uncheckpointed)
        for name, committer in committers.items():
            committer.open(replace(restores[name], uncheckpointed_commits=repeated))
        self.progress.restored(self.ledger.state)
        return RecoveredPipeline(
            offsets=self.offsets,
            checkpoint_offsets=self.checkpoint_offsets,
            committers=committers,
            uncheckpointed_commits=uncheckpointed,
            abandoned=abandoned,
        )

    def _wait_for_engine(self, state: PipelineState) -> None:
        """Run an empty batch if a sink commits on the engine, to surface errors of its start."""
        if not any(sink.on_engine for sink in self.graph.sinks.values()):
            return
        empty = Batch(
            lineage=state.lineage,
            pipeline=state.pipeline,
            checkpoint=0,
            generation=self.ledger.generation,
            ranges={},
        )
        self.context.engine.run(self.graph, empty)

    def _sink_restores(
        self, state: PipelineState, states: Mapping[str, Any]
    ) -> dict[str, SinkRestore]:
        """Describe to each sink where it resumes."""
        return {
            name: SinkRestore(
                lineage=state.lineage,
                generation=self.ledger.generation,
                checkpoint=state.latest.checkpoint if state.latest else 0,
                pending=state.pending.checkpoint if state.pending else None,
                state=None
                if name in state.dropped_operators
                else states.get(name, {}).get("state"),
                rewind=state.rewind,
                token=self.ledger.token,
                installation=self.context.installation,
            )
            for name in self.graph.sinks
        }

    def _check_target_records(
        self,
        committers: Mapping[str, Committer],
        restores: Mapping[str, SinkRestore],
        expected: frozenset[str],
    ) -> None:
        """Check that every target remembers the checkpoint from which it resumes.

        Runs before anything is created in a target.
        """
        accepted = accepted_checkpoint(self.context.job, self.ledger.pipeline)
        for name, committer in committers.items():
            must = name in expected and restores[name].checkpoint != accepted
            record = read_target_record(
                partial(committer.target_record, restores[name]),
                restores[name].checkpoint if must else 0,
                self.context.clock,
                self.context.stop,
            )
            if record is None:
                continue
            if must and record.checkpoint < restores[name].checkpoint:
                raise SinkLostRecord(name, record, restores[name].checkpoint)
            if record.others:
                self.warnings.append(foreign_rows_warning(record))
                LOG.warning(
                    "target_holds_other_rows",
                    extra={
                        "job_id": self.ledger.job_id,
                        "operator": name,
                        "why": foreign_rows_warning(record),
                    },
                )

    def _read_checkpoints(self, state: PipelineState) -> Mapping[str, Any]:
        """Return the operator states of the latest checkpoint, which must be intact.

        Of older checkpoints only the offsets are kept, if they can be read.
        """
        states: Mapping[str, Any] = {}
        for ref in state.retained:
            try:
                checkpoint = self.context.storage.read(ref.path)
                states = checkpoint.states
            except Damaged:
                if ref == state.latest:
                    raise
                continue
            if ref == state.latest and not self.context.job.fork:  # a fork has a lineage of its own
                lineages = {
                    f"pipeline {state.pipeline}": state.lineage,
                    f"its checkpoint {ref.checkpoint}": checkpoint.manifest.lineage,
                }
                check_same_lineage(state.job_id, lineages)
            self.checkpoint_offsets[ref.checkpoint] = {
                name: states[name]["offset"] for name in self.graph.sources if name in states
            }
        return states

    def _set_start_offsets(
        self, restored: Mapping[str, Offset], first_offsets: Mapping[str, Offset]
    ) -> None:
        """Choose the offsets from which to resume.

        These are the checkpoint's; else where the source began, according to the store or to a
        sink's first record; else the source's initial offset.
        """
        dropped = self.ledger.state.dropped_operators
        known = {
            **first_offsets,
            **{name: offset for name, offset in restored.items() if name not in dropped},
        }
        initial = {
            name: partial(known.__getitem__, name) if name in known else source.initial
            for name, source in self.graph.sources.items()
        }
        self.ledger.start(initial, self.warnings)
        state = self.ledger.state
        recorded = state.initial or {}
        self.offsets = {
            name: (
                restored[name]
                if name in restored and name not in state.dropped_operators
                else recorded[name]
            )
            for name in self.graph.sources
        }
        if restored:
            self.offsets = retained_offsets(
                self.graph.sources,
                self.offsets,
                self.context.job.on_position_lost,
                pending=state.pending is not None,
            )
