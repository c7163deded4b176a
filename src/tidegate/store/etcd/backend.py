"""The store on etcd: for servers, workers and drivers on several hosts. Opened by open.py only.

A transaction is one of etcd's: its checks are conditions on the etcd revisions of the entries, so
transactions that have nothing to do with each other do not meet. What is believed without asking
(the charter, the newest revision) is a condition too; where it is old, etcd's answer says what is
there now, and the transaction is planned once more. etcd_layout.py says how revisions, the log and
given-up tokens are kept.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tidegate.store.backend import (
    ChangeKind,
    Changes,
    Committed,
    Compacted,
    Get,
    Listing,
    MapSize,
    NotCommitted,
    OutcomeForgotten,
    Query,
    Retention,
    StoredRow,
    Transaction,
    TransactionName,
)
from tidegate.store.errors import Conflict, StoreUnavailable
from tidegate.store.etcd.http import EtcdClient
from tidegate.store.etcd.key_layout import Charter, KeyLayout, encoded_rows
from tidegate.store.etcd.prune import Pruner
from tidegate.store.etcd.requests import (
    Json,
    TxnResult,
    answer_of,
    delete,
    end_of,
    get,
    if_mod,
    put,
    span,
)
from tidegate.store.etcd.view import OPERATIONS_MAX, PAGE_KEYS, TRANSACTION, EtcdView, Moment
from tidegate.store.failpoints import (
    after_compaction,
    before_compaction,
    inside_compaction,
    inside_transaction,
)

PATIENCE_S = 20.0  # with other writers, before a transaction gives up
# given-up tokens that are not counted as revisions; more would make the charter long, and then
# revisions jump
GAPS_MAX = 1000
Name = tuple[str, str]  # map, key


@dataclass(frozen=True, kw_only=True, slots=True)
class _Look:
    """What a transaction is planned on: etcd's revisions of the entries that matter (0 = absent),
    as they are or as its author believes.
    """

    charter: Charter
    hint: int
    last_mod: int
    mods: dict[Name, int]
    void: bool = False


class EtcdBackend:
    """One prefix of one cluster."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        prefix: str,
        retention: Retention,
        username: str = "",
        password: str = "",
        tls: bool = False,
        patience_s: float = PATIENCE_S,
        create: bool = True,
    ) -> None:
        self._layout = KeyLayout(prefix)
        self._client = EtcdClient(endpoints, username=username, password=password, tls=tls)
        try:
            self._view = EtcdView(self._client, self._layout, patience_s=patience_s, create=create)
        except BaseException:
            self._client.close()
            raise
        self._retention = retention
        self._pruner = Pruner(self._view, retention)

    def read(self, map: str, key: str) -> StoredRow | None:
        return next(iter(self.query([Get(map, key)])[0]), None)

    def scan(self, map: str, prefix: str) -> list[StoredRow]:
        return self.query([Listing(map, prefix)])[0]

    def query(self, queries: Sequence[Query]) -> list[list[StoredRow]]:
        layout = self._layout
        asked = [
            (
                get(layout.entry(each.map, each.key))
                if isinstance(each, Get)
                else _all_of(layout.map(each.map) + each.prefix.encode())
            )
            for each in queries
        ]
        charter, found = self._view.answers(asked)
        return [
            [layout.read_row(charter, layout.map(each.map), pair) for pair in pairs]
            for each, pairs in zip(queries, found, strict=True)
        ]

    def revision(self) -> int:
        return self._view.moment().revision

    def apply(self, transaction: Transaction) -> int:
        if not transaction.writes:
            moment = self._view.moment(*self._questions(transaction))
            _judge(_looked(moment, _names(transaction)), transaction)
            return moment.revision
        inside_transaction()
        return self._commit(transaction)

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        give_up_at = self._view.give_up_at()
        while True:
            # The mark first: whatever is not in the log after it was seen will never be.
            marked = bool(self._view.moment(get(self._layout.void(token.id))).found[0])
            moment, records = self._view.records(token.since)
            written = next(
                (record.revision for record in records if record.token == token.id.hex()), None
            )
            if written is not None:
                return Committed(written)
            if marked:
                return NotCommitted()
            if moment.charter.floor > token.since:
                return OutcomeForgotten()
            self._mark_void(token, moment)
            self._view.check_patience(give_up_at)

    def feed(self, maps: Collection[str], since: int) -> Changes | Compacted:
        if since < self._view.charter.floor:
            return Compacted(
                self.revision()
            )  # the floor never sinks: no need to have the whole log sent
        moment, records = self._view.news(since)
        known = (
            since in (0, moment.revision, moment.charter.floor)
            or self._view.counted(since)
            or any(record.revision == since for record in records)
        )
        new = [record for record in records if record.revision > since]
        too_many = self._retention.due(sum(len(record.rows) for record in new), len(new))
        if not moment.charter.floor <= since <= moment.revision or not known or too_many:
            return Compacted(moment.revision)
        return Changes(
            tuple(change for record in new for change in record.changes(maps)), moment.revision
        )

    def size_by_map(self) -> dict[str, MapSize]:
        sizes: dict[str, MapSize] = {}
        start = self._layout.entries
        for pair in self._view.answers([_all_of(start)])[1][0]:
            map, _, key = pair.key[len(start) :].partition(b"/")
            old = sizes.get(map.decode(), MapSize(0, 0))
            sizes[map.decode()] = MapSize(old.entries + 1, old.bytes + len(key) + len(pair.value))
        return dict(sorted(sizes.items()))

    def compact(self) -> None:
        before_compaction()
        self._pruner.prune_now()
        inside_compaction()
        self._pruner.give_space_back()
        after_compaction()

    def close(self) -> None:
        self._client.close()

    def _commit(self, transaction: Transaction) -> int:
        give_up_at = self._view.give_up_at()
        look = self._guess(transaction) or self._inspect(transaction)
        names, asked = _names(transaction), [*self._view.questions(), *self._questions(transaction)]
        otherwise = asked if len(asked) <= OPERATIONS_MAX else []
        while True:
            _judge(look, transaction)
            charter, answer = self._attempt(transaction, look, otherwise)
            if answer.succeeded:
                revision = charter.number(answer.revision)
                self._view.saw(charter, revision)
                self._pruner.plan_if_due(answer.found[0][0].version)
                return revision
            look = (
                _looked(self._view.judged(answer), names)
                if otherwise
                else self._inspect(transaction)
            )
            self._view.check_patience(give_up_at)

    def _attempt(
        self, transaction: Transaction, look: _Look, otherwise: list[Json]
    ) -> tuple[Charter, TxnResult]:
        """Try to write; the charter after that."""
        layout, token = self._layout, transaction.token.id
        acts, rows = self._acts(transaction, look)
        acts += [
            put(layout.last, b"", tell_old=True),
            put(layout.record(look.hint, token, len(rows)), encoded_rows(rows)),
        ]
        plan = self._pruner.take_plan(look.charter)
        if plan is not None:
            acts += plan.acts
        conditions = [*self._conditions(look), if_mod(layout.void(token), 0)]
        answer = answer_of(
            self._client.call_once(
                TRANSACTION, {"compare": conditions, "success": acts, "failure": otherwise}
            )
        )
        if plan is None or not answer.succeeded:
            return look.charter, answer
        self._pruner.pruned(look.charter)
        return replace(plan.charter, mod=answer.revision), answer

    def _conditions(self, look: _Look) -> list[Json]:
        """That all is as it was seen.

        Where that is too much for etcd, that nothing at all was written.
        """
        same_charter = if_mod(self._layout.charter, look.charter.mod)
        if len(look.mods) + 3 > OPERATIONS_MAX:
            return [same_charter, if_mod(self._layout.last, look.last_mod)]
        near = if_mod(
            self._layout.last, look.charter.mod_of(look.hint) + self._layout.window, "LESS"
        )
        return [
            same_charter,
            near,
            *(if_mod(self._layout.entry(*name), mod) for name, mod in look.mods.items()),
        ]

    def _acts(
        self, transaction: Transaction, look: _Look
    ) -> tuple[list[Json], list[tuple[str, str, str]]]:
        """The writes, and the rows of the log for them. Deleting what is not there is no change."""
        acts: list[Json] = []
        rows: list[tuple[str, str, str]] = []
        for write in transaction.writes:
            key = self._layout.entry(write.map, write.key)
            if write.text is not None:
                acts.append(put(key, write.text.encode()))
                rows.append((write.map, write.key, ChangeKind.PUT))
            elif look.mods[write.map, write.key]:
                acts.append(delete(key))
                rows.append((write.map, write.key, ChangeKind.DELETE))
        return acts, rows

    def _guess(self, transaction: Transaction) -> _Look | None:
        """What must be there for the transaction to pass, if that says enough: then one round trip
        will do.
        """
        charter, hint = self._view.charter, self._view.hint
        mods = {
            (check.map, check.key): charter.version_mod(check.version)
            for check in transaction.checks
        }
        contradictory = len(mods) < len(set(transaction.checks))
        if contradictory or len(mods) < len(_names(transaction)) or len(mods) + 3 > OPERATIONS_MAX:
            return None
        return _Look(charter=charter, hint=hint, last_mod=0, mods=mods)

    def _inspect(self, transaction: Transaction) -> _Look:
        """What is there.

        If it does not fit into one question, `last` comes first: if it is unchanged when the
        transaction is made, so is all the rest.
        """
        questions, first = self._questions(transaction), OPERATIONS_MAX - 2
        moment = self._view.moment(*questions[:first])
        rest = self._view.moment(*questions[first:]).found if len(questions) > first else []
        return _looked(replace(moment, found=moment.found + rest), _names(transaction))

    def _questions(self, transaction: Transaction) -> list[Json]:
        return [
            get(self._layout.void(transaction.token.id)),
            *(get(self._layout.entry(*name)) for name in _names(transaction)),
        ]

    def _mark_void(self, token: TransactionName, moment: Moment) -> None:
        """Unless somebody else was faster: who asks again sees it."""
        layout, charter = self._layout, moment.charter
        acts = [put(layout.void(token.id), b"%d" % moment.revision)]
        if len(charter.gaps) < GAPS_MAX:
            acts.append(put(layout.charter, charter.encoded(gap=True)))
        conditions = [if_mod(layout.charter, charter.mod), if_mod(layout.void(token.id), 0)]
        self._client.call(TRANSACTION, {"compare": conditions, "success": acts})


def _all_of(start: bytes) -> Json:
    """A question: all keys that begin so."""
    return span(start, end_of(start), limit=PAGE_KEYS)


def _judge(look: _Look, transaction: Transaction) -> None:
    if look.void:
        raise StoreUnavailable(
            "the transaction arrived after its token was voided; nothing was written"
        )
    for check in transaction.checks:
        found = look.charter.number(look.mods[check.map, check.key])
        if found != check.version:
            raise Conflict(check.map, check.key, check.version, found)


def _names(transaction: Transaction) -> list[Name]:
    """The entries that have to be known: those of the checks, and those that are to be deleted."""
    checked = [(check.map, check.key) for check in transaction.checks]
    return list(
        dict.fromkeys(
            [
                *checked,
                *((write.map, write.key) for write in transaction.writes if write.text is None),
            ]
        )
    )


def _looked(moment: Moment, names: list[Name]) -> _Look:
    void, *entries = moment.found
    mods = {name: pairs[0].mod if pairs else 0 for name, pairs in zip(names, entries, strict=True)}
    return _Look(
        charter=moment.charter,
        hint=moment.revision,
        last_mod=moment.last.mod,
        mods=mods,
        void=bool(void),
    )
