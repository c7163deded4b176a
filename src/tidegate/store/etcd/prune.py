"""Shortens the change log of a store on etcd. Called by etcd.py: every now and then after a
transaction, and by `compact`.

Pruning by and by costs no revision: what may go is planned after one transaction and goes with the
next one of this process. Nothing here is needed for correctness, so where it fails it is left to
the next one.
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

VOIDS_AT_ONCE = 20  # as many acts as fit into a transaction beside all others


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What may go: good as long as the charter is the one that it was made for.

    `charter` is the one after it.
    """

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
                self._plan = self._made(always=False)
            except StoreUnavailable:
                self._plan = None

    def take_plan(self, charter: Charter) -> PrunePlan | None:
        """The plan, if it is still good."""
        plan = self._plan
        return plan if plan is not None and plan.made_for == charter else None

    def pruned(self, before: Charter) -> None:
        """The plan was carried out.

        Etcd may forget what was before the last time: nobody reads it any more.
        """
        self._plan = None
        self._forget_history(before.history)

    def prune_now(self) -> None:
        """With a revision of its own."""
        give_up_at = self._view.give_up_at()
        while (plan := self._made(always=True)) is not None:
            conditions = [if_mod(self._view.layout.charter, plan.made_for.mod)]
            if answer_of(
                self._view.client.call(TRANSACTION, {"compare": conditions, "success": plan.acts})
            ).succeeded:
                break
            self._view.check_patience(give_up_at)

    def give_space_back(self) -> None:
        """Have etcd forget all history and make its file small.

        Where that is not allowed to us, somebody else does it.
        """
        self._forget_history(self._view.moment().etcd_revision, physical=True)
        self._view.client.suggest("/v3/maintenance/defragment", {}, to_each=True)

    def _forget_history(self, revision: int, *, physical: bool = False) -> None:
        """`physical`: and wait until it is done."""
        if revision:
            self._view.client.suggest(
                "/v3/kv/compaction", {"revision": str(revision), "physical": physical}
            )

    def _made(self, *, always: bool) -> PrunePlan | None:
        layout = self._view.layout
        moment = self._view.moment(
            span(layout.log, end_of(layout.log), keys_only=True),
            span(layout.voids, end_of(layout.voids), limit=VOIDS_AT_ONCE),
        )
        log, voids = moment.found
        charter = self._shortened(moment, log, always=always)
        if charter.floor == moment.charter.floor:
            return None
        acts = [
            put(layout.charter, charter.encoded()),
            delete_span(layout.hint(0), layout.hint(charter.floor - layout.window)),
        ]
        acts += [delete(pair.key) for pair in voids if int(pair.value) < charter.floor]
        return PrunePlan(moment.charter, charter, acts)

    def _shortened(self, moment: Moment, log: list[KeyValue], *, always: bool) -> Charter:
        """The charter with the floor where it should be: so high that at most `kept` rows, and as
        many transactions, are above it.
        """
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
            floor, left, rows = (
                charter.number(pair.mod),
                left - 1,
                rows - self._view.layout.rows_of(pair),
            )
        return replace(charter, floor=floor, history=moment.etcd_revision)
