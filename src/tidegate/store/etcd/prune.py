"""Prune the change log of a store on etcd.

Called by backend.py, after transactions and by `compact`. Regular pruning needs no revision: it is
planned after one transaction and done with the next one of this process. It is not needed
for correctness, so a failure is left to the next attempt.
"""

from dataclasses import dataclass, replace

from tidegate.store.backend import Retention
from tidegate.store.errors import StoreUnavailable
from tidegate.store.etcd.key_layout import Charter
from tidegate.store.etcd.requests import (
    Json,
    KeyValue,
    answer_of,
    delete,
    delete_span,
    end_of,
    if_mod,
    put,
    span,
)
from tidegate.store.etcd.view import TRANSACTION, EtcdView, Moment

VOIDS_AT_ONCE = 20  # what fits into a transaction besides all other operations


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What can be pruned; valid while the charter is `made_for`. `charter` is the new one."""

    made_for: Charter
    charter: Charter
    acts: list[Json]


class Pruner:
    """Keeps the log of one store within its retention."""

    def __init__(self, view: EtcdView, retention: Retention) -> None:
        self._view = view
        self._retention = retention
        self._every = max(1, (retention.threshold - retention.kept) // 2)
        self._plan: PrunePlan | None = None

    def plan_if_due(self, count: int) -> None:
        if count % self._every == 0:
            try:
                self._plan = self._make_plan(always=False)
            except StoreUnavailable:
                self._plan = None

    def take_plan(self, charter: Charter) -> PrunePlan | None:
        """Return the plan if it is still valid."""
        plan = self._plan
        return plan if plan is not None and plan.made_for == charter else None

    def pruned(self, before: Charter) -> None:
        """After a plan was executed, let etcd compact the history before the previous pruning."""
        self._plan = None
        self._forget_history(before.history)

    def prune_now(self) -> None:
        """Prune in a separate transaction."""
        deadline_s = self._view.deadline()
        while (plan := self._make_plan(always=True)) is not None:
            conditions = [if_mod(self._view.layout.charter, plan.made_for.mod)]
            if answer_of(
                self._view.client.call(TRANSACTION, {"compare": conditions, "success": plan.acts})
            ).succeeded:
                break
            self._view.check_deadline(deadline_s)

    def defragment(self) -> None:
        """Compact etcd's history and defragment its file, if permitted."""
        self._forget_history(self._view.moment().etcd_revision, physical=True)
        self._view.client.suggest("/v3/maintenance/defragment", {}, to_each=True)

    def _forget_history(self, revision: int, *, physical: bool = False) -> None:
        """Compact etcd's history; `physical` waits until it is done."""
        if revision:
            self._view.client.suggest(
                "/v3/kv/compaction", {"revision": str(revision), "physical": physical}
            )

    def _make_plan(self, *, always: bool) -> PrunePlan | None:
        layout = self._view.layout
        moment = self._view.moment(
            span(layout.log, end_of(layout.log), keys_only=True),
            span(layout.voids, end_of(layout.voids), limit=VOIDS_AT_ONCE),
        )
        log, voids = moment.found
        charter = self._raise_floor(moment, log, always=always)
        if charter.floor == moment.charter.floor:
            return None
        acts = [
            put(layout.charter, charter.encoded()),
            delete_span(layout.hint(0), layout.hint(charter.floor - layout.window)),
        ]
        acts += [delete(pair.key) for pair in voids if int(pair.value) < charter.floor]
        return PrunePlan(moment.charter, charter, acts)

    def _raise_floor(self, moment: Moment, log: list[KeyValue], *, always: bool) -> Charter:
        """Return the charter with a floor above which at most `kept` rows and transactions are."""
        charter, kept = moment.charter, self._retention.kept
        live = sorted(
            (pair for pair in log if charter.number(pair.mod) > charter.floor),
            key=lambda pair: pair.mod,
        )
        rows = sum(map(self._view.layout.rows_of, live))
        if not (always or self._retention.due(rows, len(live))):
            return charter
        floor, left = charter.floor, len(live)
        for pair in live:
            if left <= kept and rows <= kept:
                break
            floor = charter.number(pair.mod)
            left -= 1
            rows -= self._view.layout.rows_of(pair)
        return replace(charter, floor=floor, history=moment.etcd_revision)
