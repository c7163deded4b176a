"""What a store on etcd holds, each answer as of one moment.

Called by etcd.py; writes nothing but the charter of a new store.
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
# etcd's default for the conditions, and for each of the two lists of acts, of one transaction
OPERATIONS_MAX = 128
TRANSACTION, RANGE = "/v3/kv/txn", "/v3/kv/range"


@dataclass(frozen=True, slots=True)
class Moment:
    """The charter, the newest transaction, and the pairs of each question, all at the same time."""

    charter: Charter
    last: KeyValue
    found: list[list[KeyValue]]
    etcd_revision: int

    @property
    def revision(self) -> int:
        return self.charter.number(self.last.mod)


class EtcdView:
    """Reads one store.

    `charter` and `hint` are the newest that this process has seen; both may be old, and who builds
    on them has etcd compare them.
    """

    def __init__(
        self, client: EtcdClient, layout: KeyLayout, *, patience_s: float, create: bool = True
    ) -> None:
        self.client = client
        self.layout = layout
        self.patience_s = patience_s
        self.charter, self.hint = self._open_or_create(create=create), 0
        self._store = self.charter.store
        self._reach = REACH_MIN  # how far before `since` the hints of what came after it lay lately
        self._counts: dict[
            int, int
        ] = {}  # the number of transactions at some revisions; replaced whole, as threads share it

    def moment(self, *questions: Json) -> Moment:
        """Ask several things at once."""
        return self.judged(
            answer_of(self.client.call(TRANSACTION, {"success": [*self.questions(), *questions]}))
        )

    def questions(self) -> list[Json]:
        """What `judged` needs to be asked first."""
        return [get(self.layout.charter), get(self.layout.last)]

    def judged(self, answer: TxnResult) -> Moment:
        """The answer to `questions` and more."""
        charter, last = self.layout.read_charter(answer.found[0]), answer.found[1]
        if charter is None or not last or charter.store != self._store:
            raise StoreLost(
                f"the store under {self.layout.root.decode()} in etcd was removed or replaced while"
                " it was open: nothing was written; bring it back, or stop all processes and start"
                " them again"
            )
        moment = Moment(charter, last[0], answer.found[2:], answer.revision)
        self.saw(charter, moment.revision)
        return moment

    def saw(self, charter: Charter, revision: int) -> None:
        """Remember. Threads may race here; who is left with something older has to ask once more,
        and that is all.
        """
        self.charter = charter
        self.hint = revision

    def records(self, since: int) -> tuple[Moment, list[LogRecord]]:
        """The log from the transaction `since` on, itself included where it is kept; maybe some
        before it.
        """
        moment = self.moment(self._log_question(since, self.layout.window))
        return moment, self._log(moment)

    def news(self, since: int) -> tuple[Moment, list[LogRecord]]:
        """The log after the transaction `since`; maybe some before it. Where nothing came, etcd
        does not look through its log; where this process has seen `since` before, only through the
        part that the last readings needed. Whether that was all is known by the number of
        transactions.
        """
        counted, reach = self._counts.get(since), self._reach
        if counted is None or reach >= self.layout.window:
            return self._news(since, self.layout.window)
        moment, records = self._news(since, reach)
        new = [record for record in records if record.revision > since]
        if len(new) < moment.last.version - counted:
            self._reach = 2 * reach
            return self._news(since, self.layout.window)
        self._reach = max(
            REACH_MIN, reach * 9 // 10, *(2 * (since - record.hint) for record in new)
        )
        return moment, records

    def counted(self, since: int) -> bool:
        """Whether a transaction `since` was seen here, and not long ago."""
        return since in self._counts

    def answers(self, questions: Sequence[Json]) -> tuple[Charter, list[list[KeyValue]]]:
        """The pairs of each question as of one moment, however many they are.

        Questions about many keys have PAGE_KEYS as their limit.
        """
        give_up_at = self.give_up_at()
        while True:
            try:
                return self._answers(questions)
            except HistoryGone:  # somebody had etcd forget that moment between two requests
                self.check_patience(give_up_at)

    def give_up_at(self) -> float:
        return time.monotonic() + self.patience_s

    def check_patience(self, give_up_at: float) -> None:
        """Others may be faster again and again, but not for ever."""
        if time.monotonic() > give_up_at:
            raise StoreUnavailable(
                f"others have changed the store on etcd again and again for {self.patience_s:g} s;"
                " nothing was written"
            )

    def _news(self, since: int, reach: int) -> tuple[Moment, list[LogRecord]]:
        idle = [
            if_mod(self.layout.charter, self.charter.mod),
            if_mod(self.layout.last, self.charter.mod_of(since)),
        ]
        asked = [*self.questions(), self._log_question(since, reach)]
        moment = self.judged(
            answer_of(
                self.client.call(
                    TRANSACTION, {"compare": idle, "success": self.questions(), "failure": asked}
                )
            )
        )
        self._counts = {
            **dict(list(self._counts.items())[-COUNTS_KEPT:]),
            moment.revision: moment.last.version,
        }
        return moment, self._log(moment) if moment.found else []

    def _log_question(self, since: int, reach: int) -> Json:
        # Where the charter is old, it lists fewer gaps, so the question is for a little more than
        # is needed.
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
        """As many questions in one request as etcd takes, and no answer too big; the later ones as
        of the moment of the first.
        """
        first = OPERATIONS_MAX - len(self.questions())
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
        answer = answer_of(self.client.call(TRANSACTION, {"success": self.questions()}))
        found = layout.read_charter(answer.found[0])
        if found is not None:
            return found
        if not create:
            raise StoreLost(
                f"the store under {layout.root.decode()} in etcd is gone: it is waited for, and no"
                " new one is made"
            )
        before_creation()
        charter = Charter(store=os.urandom(8).hex())
        inside_creation()
        acts = [put(layout.charter, charter.encoded()), put(layout.last, b"")]
        self.client.call(TRANSACTION, {"compare": [if_empty(layout.root)], "success": acts})
        after_creation()
        found = layout.read_charter(
            answer_of(self.client.call(TRANSACTION, {"success": self.questions()})).found[0]
        )
        if found is None:
            raise StoreDamaged(
                f"under {layout.root.decode()} in etcd there are keys and no charter of a store:"
                " use another prefix, or remove them"
            )
        return found
