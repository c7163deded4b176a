"""What a store on etcd holds, each answer as of one moment. Called by etcd.py; writes nothing but the charter of a new store."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.store.errors import StoreDamaged, StoreUnavailable
from tidegate.store.etcd_errors import HistoryGone
from tidegate.store.etcd_http import EtcdClient
from tidegate.store.etcd_layout import Charter, Layout, LogRecord
from tidegate.store.etcd_requests import Answer, Json, Pair, answer_of, end_of, get, if_empty, pairs_of, put, span
from tidegate.store.places import after_creation, before_creation, inside_creation

PAGE_KEYS = 500
TRANSACTION, RANGE = "/v3/kv/txn", "/v3/kv/range"


@dataclass(frozen=True, slots=True)
class Moment:
    """The charter, the newest transaction, and the pairs of each question, all at the same time."""

    charter: Charter
    last: Pair
    found: list[list[Pair]]
    etcd_revision: int

    @property
    def revision(self) -> int:
        """Of the store."""
        return self.charter.number(self.last.mod)


class EtcdView:
    """Reads one store. `charter` and `hint` are the newest that this process has seen; both may be old, and who builds on them has etcd compare them."""

    def __init__(self, client: EtcdClient, layout: Layout, *, patience_s: float) -> None:
        self.client, self.layout, self.patience_s = client, layout, patience_s
        self.charter, self.hint = self._open_or_create(), 0
        self._store = self.charter.store

    def moment(self, *questions: Json) -> Moment:
        """Ask several things at once."""
        return self.judged(answer_of(self.client.call(TRANSACTION, {"success": [*self.questions(), *questions]})))

    def questions(self) -> list[Json]:
        """What `judged` needs to be asked first."""
        return [get(self.layout.charter), get(self.layout.last)]

    def judged(self, answer: Answer) -> Moment:
        """The answer to `questions` and more."""
        charter, last = self.layout.read_charter(answer.found[0]), answer.found[1]
        if charter is None or not last or charter.store != self._store:
            raise StoreDamaged(f"the store under {self.layout.root.decode()} in etcd was removed or replaced while it was open: start again")
        moment = Moment(charter, last[0], answer.found[2:], answer.revision)
        self.saw(charter, moment.revision)
        return moment

    def saw(self, charter: Charter, revision: int) -> None:
        """Remember. Threads may race here; who is left with something older has to ask once more, and that is all."""
        self.charter, self.hint = charter, revision

    def records(self, since: int) -> tuple[Moment, list[LogRecord]]:
        """The log from the transaction `since` on, itself included where it is kept; maybe some before it."""
        # Where the charter is old, it lists fewer gaps, so the question is for a little more than is needed.
        question = span(self.layout.hint(since - self.layout.window), end_of(self.layout.log), since=self.charter.mod_of(since))
        moment = self.moment(question)
        pairs = sorted(moment.found[0], key=lambda pair: pair.mod)
        return moment, [self.layout.read_record(moment.charter, pair) for pair in pairs]

    def pairs(self, start: bytes) -> tuple[Charter, list[Pair]]:
        """All pairs whose key begins so."""
        give_up_at = self.give_up_at()
        while True:
            try:
                moment = self.moment(span(start, end_of(start), limit=PAGE_KEYS))
                return moment.charter, [pair for page in self._pages(moment, end_of(start)) for pair in page]
            except HistoryGone:  # somebody had etcd forget that moment between two pages
                self.check_patience(give_up_at)

    def give_up_at(self) -> float:
        """When to stop trying."""
        return time.monotonic() + self.patience_s

    def check_patience(self, give_up_at: float) -> None:
        """Others may be faster again and again, but not for ever."""
        if time.monotonic() > give_up_at:
            raise StoreUnavailable(f"others have changed the store on etcd again and again for {self.patience_s:g} s; nothing was written")

    def _pages(self, moment: Moment, end: bytes) -> Iterator[list[Pair]]:
        """Page by page, so that no answer is too big; the later ones as of the moment of the first."""
        page = moment.found[0]
        yield page
        while len(page) == PAGE_KEYS:
            question = span(page[-1].key + b"\0", end, limit=PAGE_KEYS)["request_range"]
            page = pairs_of(self.client.call(RANGE, {**question, "revision": str(moment.etcd_revision)}))
            yield page

    def _open_or_create(self) -> Charter:
        layout = self.layout
        answer = answer_of(self.client.call(TRANSACTION, {"success": self.questions()}))
        found = layout.read_charter(answer.found[0])
        if found is not None:
            return found
        before_creation()
        charter = Charter(store=os.urandom(8).hex())
        inside_creation()
        acts = [put(layout.charter, charter.encoded()), put(layout.last, b"")]
        self.client.call(TRANSACTION, {"compare": [if_empty(layout.root)], "success": acts})
        after_creation()
        found = layout.read_charter(answer_of(self.client.call(TRANSACTION, {"success": self.questions()})).found[0])
        if found is None:
            raise StoreDamaged(f"under {layout.root.decode()} in etcd there are keys and no charter of a store: use another prefix, or remove them")
        return found
