"""Check every transaction that the store applies for what must never be in one.

Called by sim_run.
"""

import json
from typing import TYPE_CHECKING, Any

from tidegate.model.records import JOB_OUTCOMES, PIPELINES
from tidegate.store.backend import Transaction

if TYPE_CHECKING:
    from sim_run import Simulation


class Watch:
    """The last state written for each pipeline, and the checks of the next write."""

    def __init__(self, simulation: "Simulation") -> None:
        self.simulation = simulation
        self.last: dict[str, dict[str, Any]] = {}
        self.gone: dict[str, dict[str, Any]] = {}  # of a job that has finished
        self.completed_by: dict[tuple[str, str, int], int] = {}
        self.begun: dict[tuple[str, str, int], Any] = {}
        self.ending = False  # whether the transaction is a terminal one

    def see(self, transaction: Transaction) -> None:
        self.ending = any(write.map == JOB_OUTCOMES for write in transaction.writes)
        for write in transaction.writes:
            if write.map == PIPELINES:
                if (
                    write.text is None
                ):  # two processes may carry out one cleanup, each from its start
                    self.gone[write.key] = self.last.pop(write.key, None) or self.gone[write.key]
                else:
                    self._pipeline(write.key, json.loads(write.text))

    def _pipeline(self, key: str, state: dict[str, Any]) -> None:
        before = self.last.get(key)
        self.last[key] = state
        writer = self.simulation.turns.current.process if self.simulation.turns.current else None
        if (
            writer is not None
            and not writer.claimed
            and (before is None or state["generation"] > before["generation"])
        ):
            writer.generation = state[
                "generation"
            ]  # this is its fence; a claim that was overtaken may make another
        # Ending a job moves the remaining state to a generation of its own, so that no driver can
        # write there any more.
        if (
            writer is not None
            and writer.generation is not None
            and writer.generation + self.ending != state["generation"]
        ):
            self.simulation.broken(
                f"generation {writer.generation} wrote the state of generation"
                f" {state['generation']}"
            )
        same_lineage = before is not None and before["lineage"] == state["lineage"]
        if before is not None and state["generation"] < before["generation"]:
            self.simulation.broken(
                f"the generation went back from {before['generation']} to {state['generation']}"
            )
        if (
            same_lineage
            and before is not None
            and state["next_checkpoint"] < before["next_checkpoint"]
        ):
            self.simulation.broken(
                f"checkpoint ids went back from {before['next_checkpoint']} to"
                f" {state['next_checkpoint']}"
            )
        if state["pending"] is not None:
            self._pending(key, state)
        known = (
            {ref["checkpoint"] for ref in before["retained"]}
            if same_lineage and before is not None
            else set()
        )
        for ref in state["retained"]:
            if ref["checkpoint"] in known:
                pass
            elif writer is not None and not writer.claimed:
                self._taken_up(state, ref)
            else:
                self._completed(key, state, ref, before if same_lineage else None)
            if (
                ref["checkpoint"] in known
                and ref["path"] not in self.simulation.damaged
                and not (self.simulation.place / ref["path"] / "_manifest.json").exists()
            ):
                self.simulation.broken(
                    f"checkpoint {ref['checkpoint']} of pipeline {key} of generation"
                    f" {state['generation']} is retained, and somebody deleted it"
                )

    def forget(self) -> None:
        """Forget all states: the store was lost with everything in it."""
        self.last = {}
        self.gone = {}

    def _pending(self, key: str, state: dict[str, Any]) -> None:
        pending = state["pending"]
        name = (state["lineage"], key, pending["checkpoint"])
        if self.begun.setdefault(name, pending["ranges"]) != pending[
            "ranges"
        ] and not self.simulation.may_differ(state, pending["checkpoint"]):
            self.simulation.broken(
                f"batch {pending['checkpoint']} of pipeline {key} got other ranges"
            )
        self.begun[name] = pending["ranges"]

    def _taken_up(self, state: dict[str, Any], ref: dict[str, Any]) -> None:
        """Check a checkpoint that a leader restores although the store does not hold it: after the
        store was lost, or from a savepoint.
        """
        if ref["path"] not in self.simulation.damaged and (
            damage := self.simulation.storage.damage(ref["path"])
        ):
            self.simulation.broken(
                f"checkpoint {ref['checkpoint']} of generation {state['generation']} is taken up"
                f" and cannot be used: {damage}"
            )

    def _completed(
        self, key: str, state: dict[str, Any], ref: dict[str, Any], before: dict[str, Any] | None
    ) -> None:
        name = (state["lineage"], key, ref["checkpoint"])
        if (
            ref["path"] in self.simulation.damaged or self.simulation.lost_stores
        ):  # it is made once more
            self.completed_by.pop(name, None)
            self.simulation.damaged.discard(ref["path"])
        if self.completed_by.setdefault(name, ref["generation"]) != ref["generation"]:
            self.simulation.broken(
                f"checkpoint {name} was completed by generations {self.completed_by[name]} and"
                f" {ref['generation']}"
            )
        if (
            before is None
            or before["pending"] is None
            or before["pending"]["checkpoint"] != ref["checkpoint"]
        ):
            self.simulation.broken(f"checkpoint {name} was completed without having begun")
        damage = self.simulation.storage.damage(ref["path"])
        if damage:
            self.simulation.broken(f"checkpoint {name} was completed and is not there: {damage}")
