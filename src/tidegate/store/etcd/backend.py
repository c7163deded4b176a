"""The store on etcd, for servers, workers and drivers on several hosts. Opened by open.py only.

A transaction is one etcd transaction. Its checks are conditions on the etcd revisions of the
entries, so unrelated transactions do not conflict. Cached values (the charter, the newest revision)
are conditions too: if they are stale, etcd's answer contains the current ones, and the transaction
is planned again. key_layout.py says how revisions, the log and voided tokens are stored.
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

CONTENTION_S_MAX = 20.0  # how long a transaction is retried against other writers
# voided tokens that are not counted as revisions; more would make the charter long, so after that
# revisions have gaps
GAPS_MAX = 1000
Name = tuple[str, str]  # map, key


@dataclass(frozen=True, kw_only=True, slots=True)
class _Observed:
    """The state on which a transaction is planned, as read or as its checks assume.

    `mods` are the etcd revisions of the entries it depends on; 0 if absent.
    """

    charter: Charter
    hint: int
    last_mod: int
    mods: dict[Name, int]
    void: bool = False


class EtcdBackend:
    """A store below one prefix of a cluster."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        prefix: str,
        retention: Retention,
        username: str = "",
        password: str = "",
        tls: bool = False,
        contention_s_max: float = CONTENTION_S_MAX,
        create: bool = True,
    ) -> None:
        self._layout = KeyLayout(prefix)
        self._client = EtcdClient(endpoints, username=username, password=password, tls=tls)
        try:
            self._view = EtcdView(
                self._client, self._layout, contention_s_max=contention_s_max, create=create
            )
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
            moment = self._view.moment(*self._reads(transaction))
            _require_checks(_observed(moment, _entries_to_read(transaction)), transaction)
            return moment.revision
        inside_transaction()
        return self._commit(transaction)

    def resolve_outcome(
        self, token: TransactionName
    ) -> Committed | NotCommitted | OutcomeForgotten:
        deadline_s = self._view.deadline()
        while True:
            # The mark is read first: what is not in the log afterwards will never be.
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
            self._view.check_deadline(deadline_s)

    def feed(self, maps: Collection[str], since: int) -> Changes | Compacted:
        if since < self._view.charter.floor:
            # the floor never decreases, so the log need not be read
            return Compacted(self.revision())
        moment, records = self._view.changes_after(since)
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
        self._pruner.defragment()
        after_compaction()

    def close(self) -> None:
        self._client.close()

    def _commit(self, transaction: Transaction) -> int:
        deadline_s = self._view.deadline()
        observed = self._guess(transaction) or self._inspect(transaction)
        names, asked = (
            _entries_to_read(transaction),
            [*self._view.head_reads(), *self._reads(transaction)],
        )
        otherwise = asked if len(asked) <= OPERATIONS_MAX else []
        while True:
            _require_checks(observed, transaction)
            charter, answer = self._attempt(transaction, observed, otherwise)
            if answer.succeeded:
                revision = charter.number(answer.revision)
                self._view.note(charter, revision)
                self._pruner.plan_if_due(answer.found[0][0].version)
                return revision
            observed = (
                _observed(self._view.moment_of(answer), names)
                if otherwise
                else self._inspect(transaction)
            )
            self._view.check_deadline(deadline_s)

    def _attempt(
        self, transaction: Transaction, observed: _Observed, otherwise: list[Json]
    ) -> tuple[Charter, TxnResult]:
        """Try to write; return the charter afterwards and the answer."""
        layout, token = self._layout, transaction.token.id
        acts, rows = self._acts(transaction, observed)
        acts += [
            put(layout.last, b"", tell_old=True),
            put(layout.record(observed.hint, token, len(rows)), encoded_rows(rows)),
        ]
        plan = self._pruner.take_plan(observed.charter)
        if plan is not None:
            acts += plan.acts
        conditions = [*self._conditions(observed), if_mod(layout.void(token), 0)]
        answer = answer_of(
            self._client.call_once(
                TRANSACTION, {"compare": conditions, "success": acts, "failure": otherwise}
            )
        )
        if plan is None or not answer.succeeded:
            return observed.charter, answer
        self._pruner.pruned(observed.charter)
        return replace(plan.charter, mod=answer.revision), answer

    def _conditions(self, observed: _Observed) -> list[Json]:
        """Return conditions that everything is unchanged since it was read.

        If these are too many for etcd: that nothing at all was written.
        """
        same_charter = if_mod(self._layout.charter, observed.charter.mod)
        if len(observed.mods) + 3 > OPERATIONS_MAX:
            return [same_charter, if_mod(self._layout.last, observed.last_mod)]
        near = if_mod(
            self._layout.last, observed.charter.mod_of(observed.hint) + self._layout.window, "LESS"
        )
        return [
            same_charter,
            near,
            *(if_mod(self._layout.entry(*name), mod) for name, mod in observed.mods.items()),
        ]

    def _acts(
        self, transaction: Transaction, observed: _Observed
    ) -> tuple[list[Json], list[tuple[str, str, str]]]:
        """Return the writes and their log rows. Deleting a missing entry is not a change."""
        acts: list[Json] = []
        rows: list[tuple[str, str, str]] = []
        for write in transaction.writes:
            key = self._layout.entry(write.map, write.key)
            if write.text is not None:
                acts.append(put(key, write.text.encode()))
                rows.append((write.map, write.key, ChangeKind.PUT))
            elif observed.mods[write.map, write.key]:
                acts.append(delete(key))
                rows.append((write.map, write.key, ChangeKind.DELETE))
        return acts, rows

    def _guess(self, transaction: Transaction) -> _Observed | None:
        """Assume the state in which the checks hold, so that one round trip is enough.

        None if the checks do not determine all entries.
        """
        charter, hint = self._view.charter, self._view.hint
        mods = {
            (check.map, check.key): charter.version_mod(check.version)
            for check in transaction.checks
        }
        contradictory = len(mods) < len(set(transaction.checks))
        if (
            contradictory
            or len(mods) < len(_entries_to_read(transaction))
            or len(mods) + 3 > OPERATIONS_MAX
        ):
            return None
        return _Observed(charter=charter, hint=hint, last_mod=0, mods=mods)

    def _inspect(self, transaction: Transaction) -> _Observed:
        """Read the current state.

        If it needs two requests, `last` is in the first: if it is unchanged when the transaction is
        made, so is everything else.
        """
        questions, first = self._reads(transaction), OPERATIONS_MAX - 2
        moment = self._view.moment(*questions[:first])
        rest = self._view.moment(*questions[first:]).found if len(questions) > first else []
        return _observed(replace(moment, found=moment.found + rest), _entries_to_read(transaction))

    def _reads(self, transaction: Transaction) -> list[Json]:
        return [
            get(self._layout.void(transaction.token.id)),
            *(get(self._layout.entry(*name)) for name in _entries_to_read(transaction)),
        ]

    def _mark_void(self, token: TransactionName, moment: Moment) -> None:
        """Void a token; if another process changed it first, the caller reads again."""
        layout, charter = self._layout, moment.charter
        acts = [put(layout.void(token.id), b"%d" % moment.revision)]
        if len(charter.gaps) < GAPS_MAX:
            acts.append(put(layout.charter, charter.encoded(gap=True)))
        conditions = [if_mod(layout.charter, charter.mod), if_mod(layout.void(token.id), 0)]
        self._client.call(TRANSACTION, {"compare": conditions, "success": acts})


def _all_of(start: bytes) -> Json:
    """Return a read of all keys with this prefix."""
    return span(start, end_of(start), limit=PAGE_KEYS)


def _require_checks(observed: _Observed, transaction: Transaction) -> None:
    if observed.void:
        raise StoreUnavailable(
            "the transaction arrived after its token was voided; nothing was written"
        )
    for check in transaction.checks:
        found = observed.charter.number(observed.mods[check.map, check.key])
        if found != check.version:
            raise Conflict(check.map, check.key, check.version, found)


def _entries_to_read(transaction: Transaction) -> list[Name]:
    """Return the entries whose state must be known: those that are checked or deleted."""
    checked = [(check.map, check.key) for check in transaction.checks]
    return list(
        dict.fromkeys(
            [
                *checked,
                *((write.map, write.key) for write in transaction.writes if write.text is None),
            ]
        )
    )


def _observed(moment: Moment, names: list[Name]) -> _Observed:
    void, *entries = moment.found
    mods = {name: pairs[0].mod if pairs else 0 for name, pairs in zip(names, entries, strict=True)}
    return _Observed(
        charter=moment.charter,
        hint=moment.revision,
        last_mod=moment.last.mod,
        mods=mods,
        void=bool(void),
    )
