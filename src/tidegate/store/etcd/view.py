"""Read a store on etcd; each answer is a consistent snapshot.

Called by backend.py and prune.py; writes only the charter of a new store.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.store.errors import StoreDamaged, StoreLost, StoreUnavailable
from tidegate.store.etcd.errors import HistoryGone
from tidegate.store.etcd.http import EtcdClient
from tidegate.store.etcd.key_layout import Charter, KeyLayout, LogRecord
from tidegate.store.etcd.requests import (
    Json,
    KeyValue,
    TxnResult,
    after,
    answer_of,
    as_of,
    end_of,
    get,
    if_empty,
    if_mod,
    pairs_of,
    put,
    span,
)
from tidegate.store.failpoints import after_creation, before_creation, inside_creation

PAGE_KEYS = 500
REACH_MIN = 64
COUNTS_KEPT = 16
# etcd's default limit for the conditions and for each list of operations of a transaction
OPERATIONS_MAX = 128
TRANSACTION, RANGE = "/v3/kv/txn", "/v3/kv/range"


@dataclass(frozen=True, slots=True)
class Moment:
    """A snapshot: the charter, the newest transaction, and the pairs of each read."""

    charter: Charter
    last: KeyValue
    found: list[list[KeyValue]]
    etcd_revision: int

    @property
    def revision(self) -> int:
        return self.charter.number(self.last.mod)


class EtcdView:
    """Reads one store.

    `charter` and `hint` are the newest that this process has seen. Both may be stale, so whoever
    uses them makes them a condition of the transaction.
    """

    def __init__(
        self, client: EtcdClient, layout: KeyLayout, *, contention_s_max: float, create: bool = True
    ) -> None:
        self.client = client
        self.layout = layout
        self.contention_s_max = contention_s_max
        self.charter, self.hint = self._open_or_create(create=create), 0
        self._store = self.charter.store
        # how far before `since` the hints of later records were recently
        self._reach = REACH_MIN
        # the number of transactions at some revisions; replaced, not changed, as threads share it
        self._counts: dict[int, int] = {}

    def moment(self, *questions: Json) -> Moment:
        """Read several things in one snapshot."""
        return self.moment_of(
            answer_of(self.client.call(TRANSACTION, {"success": [*self.head_reads(), *questions]}))
        )

    def head_reads(self) -> list[Json]:
        """Return the reads that `moment_of` expects first."""
        return [get(self.layout.charter), get(self.layout.last)]

    def moment_of(self, answer: TxnResult) -> Moment:
        """Decode the answer to `head_reads` and other reads."""
        charter, last = self.layout.read_charter(answer.found[0]), answer.found[1]
        if charter is None or not last or charter.store != self._store:
            raise StoreLost(
                f"the store under {self.layout.root.decode()} in etcd was removed or replaced while"
                " it was open: nothing was written; bring it back, or stop all processes and start"
                " them again"
            )
        moment = Moment(charter, last[0], answer.found[2:], answer.revision)
        self.note(charter, moment.revision)
        return moment

    def note(self, charter: Charter, revision: int) -> None:
        """Cache the newest charter and revision. Threads may race; a stale value costs a retry."""
        self.charter = charter
        self.hint = revision

    def records(self, since: int) -> tuple[Moment, list[LogRecord]]:
        """Read the log from transaction `since` on, itself included, maybe with earlier ones."""
        moment = self.moment(self._log_read(since, self.layout.window))
        return moment, self._log(moment)

    def changes_after(self, since: int) -> tuple[Moment, list[LogRecord]]:
        """Read the log after transaction `since`, maybe with some earlier records.

        If nothing changed, etcd does not scan the log. If this process has seen `since` before, it
        scans only the range that recent reads needed; the number of transactions tells whether that
        was everything.
        """
        counted, reach = self._counts.get(since), self._reach
        if counted is None or reach >= self.layout.window:
            return self._changes_after(since, self.layout.window)
        moment, records = self._changes_after(since, reach)
        new = [record for record in records if record.revision > since]
        if len(new) < moment.last.version - counted:
            self._reach = 2 * reach
            return self._changes_after(since, self.layout.window)
        self._reach = max(
            REACH_MIN, reach * 9 // 10, *(2 * (since - record.hint) for record in new)
        )
        return moment, records

    def counted(self, since: int) -> bool:
        """Whether this process has seen the transaction `since` recently."""
        return since in self._counts

    def answers(self, questions: Sequence[Json]) -> tuple[Charter, list[list[KeyValue]]]:
        """Return the pairs of any number of reads from one snapshot.

        Reads of ranges have the limit PAGE_KEYS and are continued page by page.
        """
        deadline_s = self.deadline()
        while True:
            try:
                return self._answers(questions)
            except HistoryGone:  # another process compacted etcd between two requests
                self.check_deadline(deadline_s)

    def deadline(self) -> float:
        return time.monotonic() + self.contention_s_max

    def check_deadline(self, deadline_s: float) -> None:
        """Raise StoreUnavailable after the deadline: other writers were always faster."""
        if time.monotonic() > deadline_s:
            raise StoreUnavailable(
                "other writers have changed the store on etcd repeatedly for"
                f" {self.contention_s_max:g} s; nothing was written"
            )

    def _changes_after(self, since: int, reach: int) -> tuple[Moment, list[LogRecord]]:
        idle = [
            if_mod(self.layout.charter, self.charter.mod),
            if_mod(self.layout.last, self.charter.mod_of(since)),
        ]
        asked = [*self.head_reads(), self._log_read(since, reach)]
        moment = self.moment_of(
            answer_of(
                self.client.call(
                    TRANSACTION, {"compare": idle, "success": self.head_reads(), "failure": asked}
                )
            )
        )
        self._counts = {
            **dict(list(self._counts.items())[-COUNTS_KEPT:]),
            moment.revision: moment.last.version,
        }
        return moment, self._log(moment) if moment.found else []

    def _log_read(self, since: int, reach: int) -> Json:
        # A stale charter lists fewer gaps, so the range is slightly larger than needed.
        return span(
            self.layout.hint(since - reach),
            end_of(self.layout.log),
            since=self.charter.mod_of(since),
        )

    def _log(self, moment: Moment) -> list[LogRecord]:
        return [
            self.layout.read_record(moment.charter, pair)
            for pair in sorted(moment.found[0], key=lambda pair: pair.mod)
        ]

    def _answers(self, questions: Sequence[Json]) -> tuple[Charter, list[list[KeyValue]]]:
        """Send as many reads per request as etcd accepts; later ones at the first's revision."""
        first = OPERATIONS_MAX - len(self.head_reads())
        moment = self.moment(*questions[:first])
        found = list(moment.found)
        for start in range(first, len(questions), OPERATIONS_MAX):
            asked = [
                as_of(question, moment.etcd_revision)
                for question in questions[start : start + OPERATIONS_MAX]
            ]
            found += answer_of(self.client.call(TRANSACTION, {"success": asked})).found
        for question, pairs in zip(questions, found, strict=True):
            page = pairs
            while len(page) == PAGE_KEYS and "range_end" in question["request_range"]:
                page = pairs_of(
                    self.client.call(
                        RANGE,
                        as_of(after(question, page[-1].key), moment.etcd_revision)["request_range"],
                    )
                )
                pairs += page
        return moment.charter, found

    def _open_or_create(self, *, create: bool) -> Charter:
        layout = self.layout
        answer = answer_of(self.client.call(TRANSACTION, {"success": self.head_reads()}))
        found = layout.read_charter(answer.found[0])
        if found is not None:
            return found
        if not create:
            raise StoreLost(
                f"the store under {layout.root.decode()} in etcd is gone: Tidegate waits for it and"
                " does not create a new one"
            )
        before_creation()
        charter = Charter(store=os.urandom(8).hex())
        inside_creation()
        acts = [put(layout.charter, charter.encoded()), put(layout.last, b"")]
        self.client.call(TRANSACTION, {"compare": [if_empty(layout.root)], "success": acts})
        after_creation()
        found = layout.read_charter(
            answer_of(self.client.call(TRANSACTION, {"success": self.head_reads()})).found[0]
        )
        if found is None:
            raise StoreDamaged(
                f"under {layout.root.decode()} in etcd there are keys and no charter of a store:"
                " use another prefix, or remove them"
            )
        return found
