"""Looks at every transaction that the store takes, and says what must never be in one.

Called by sim_world.
"""

import json
from typing import TYPE_CHECKING, Any

from tidegate.model.records import JOB_OUTCOMES, PIPELINES
from tidegate.store.backend import Transaction

if TYPE_CHECKING:
    from sim_world import World


class Watch:
    """What the store took last, and what must hold for the next."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.last: dict[str, dict[str, Any]] = {}
        self.gone: dict[str, dict[str, Any]] = {}  # of a job that has finished
        self.completed_by: dict[tuple[str, str, int], int] = {}
        self.begun: dict[tuple[str, str, int], Any] = {}
        self.ending = False  # whether the transaction is a terminal one

    def see(self, transaction: Transaction) -> None:
        self.ending = any(write.map == JOB_OUTCOMES for write in transaction.writes)
        for write in transaction.writes:
            if write.map == PIPELINES:
                if write.text is None:  # two may carry out one cleanup, each from its beginning
                    self.gone[write.key] = self.last.pop(write.key, None) or self.gone[write.key]
                else:
                    self._pipeline(write.key, json.loads(write.text))

    def _pipeline(self, key: str, state: dict[str, Any]) -> None:
        before = self.last.get(key)
        self.last[key] = state
        writer = self.world.turns.current.process if self.world.turns.current else None
        if (
            writer is not None
            and not writer.claimed
            and (before is None or state["generation"] > before["generation"])
        ):
            writer.generation = state[
                "generation"
            ]  # this is its fence; a claim that was overtaken may make another
        # Whoever ends a job moves what stays to a generation of its own, so that nobody can write
        # there any more.
        if (
            writer is not None
            and writer.generation is not None
            and writer.generation + self.ending != state["generation"]
        ):
            self.world.broken(
                f"generation {writer.generation} wrote the state of generation"
                f" {state['generation']}"
            )
        same_lineage = before is not None and before["lineage"] == state["lineage"]
        if before is not None and state["generation"] < before["generation"]:
            self.world.broken(
                f"the generation went back from {before['generation']} to {state['generation']}"
            )
        if (
            same_lineage
            and before is not None
            and state["next_checkpoint"] < before["next_checkpoint"]
        ):
            self.world.broken(
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
                and ref["path"] not in self.world.damaged
                and not (self.world.place / ref["path"] / "_manifest.json").exists()
            ):
                self.world.broken(
                    f"checkpoint {ref['checkpoint']} of pipeline {key} of generation"
                    f" {state['generation']} is retained, and somebody deleted it"
                )

    def forget(self) -> None:
        """The store is lost, with everything that was in it."""
        self.last = {}
        self.gone = {}

    def _pending(self, key: str, state: dict[str, Any]) -> None:
        pending = state["pending"]
        name = (state["lineage"], key, pending["checkpoint"])
        if self.begun.setdefault(name, pending["ranges"]) != pending[
            "ranges"
        ] and not self.world.may_differ(state, pending["checkpoint"]):
            self.world.broken(f"batch {pending['checkpoint']} of pipeline {key} got other ranges")
        self.begun[name] = pending["ranges"]

    def _taken_up(self, state: dict[str, Any], ref: dict[str, Any]) -> None:
        """A leader takes up what the store has not, or not any more: after it was lost, or from a
        savepoint.
        """
        if ref["path"] not in self.world.damaged and (
            damage := self.world.storage.damage(ref["path"])
        ):
            self.world.broken(
                f"checkpoint {ref['checkpoint']} of generation {state['generation']} is taken up"
                f" and cannot be used: {damage}"
            )

    def _completed(
        self, key: str, state: dict[str, Any], ref: dict[str, Any], before: dict[str, Any] | None
    ) -> None:
        name = (state["lineage"], key, ref["checkpoint"])
        if ref["path"] in self.world.damaged or self.world.lost_stores:  # it is made once more
            self.completed_by.pop(name, None)
            self.world.damaged.discard(ref["path"])
        if self.completed_by.setdefault(name, ref["generation"]) != ref["generation"]:
            self.world.broken(
                f"checkpoint {name} was completed by generations {self.completed_by[name]} and"
                f" {ref['generation']}"
            )
        if (
            before is None
            or before["pending"] is None
            or before["pending"]["checkpoint"] != ref["checkpoint"]
        ):
            self.world.broken(f"checkpoint {name} was completed without having begun")
        damage = self.world.storage.damage(ref["path"])
        if damage:
            self.world.broken(f"checkpoint {name} was completed and is not there: {damage}")
