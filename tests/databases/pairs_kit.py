"""A writer that records every committed state of a database, and a target observer.

Used by test_pairs. Each transaction writes its number into `clock`, so that a target shows which
commit it has. It must show all of that commit: while a table is read for the first time, every
existing row must belong to it, and from then on no row may be missing. Numbers never decrease.
"""

import random
import threading
from contextlib import closing
from decimal import Decimal
from typing import Any

from pairs_sides import COLUMNS, KEYS, LOST, Key, Row, Rows, Side

CLOCK: Key = ("clock", 1)
WORDS = (
    "",
    "name",
    "näme",
    "it's",
    'say "so"',
    "back\\slash",
    "tab\tand\nline",
    "emoji 🌊",
    "x" * 60,
)
ORDERS, ITEMS, TAGS = 150, 60, 20
FIRST_NEW, ROWS_MAX = 1_000_000, 500
PAUSE_S = 0.15
LOOK_S = 0.4


class Draft:
    """One transaction: its statements, and the rows as they will be."""

    def __init__(self, rows: Rows, number: int) -> None:
        self.number, self.statements = number, list[tuple[str, Row]]()
        self.changes: dict[Key, Row | None] = {}
        self._rows = rows
        self.put((1, number), CLOCK)

    def get(self, key: Key) -> Row | None:
        """The row of a key."""
        return self.changes[key] if key in self.changes else self._rows.get(key)

    def put(self, row: Row, old: Key) -> None:
        """Insert a row, or change the one that has a key, which may get another key by it."""
        table, columns = old[0], COLUMNS[old[0]].split(", ")
        if self.get(old) is None:
            self._do(
                f"insert into {table} ({COLUMNS[table]}) values"
                f" ({', '.join(['%s'] * len(columns))})",
                row,
            )
        else:
            self._do(
                f"update {table} set {', '.join(f'{c} = %s' for c in columns)} where"
                f" {_where(table)}",
                (*row, *old[1:]),
            )
            self.changes[old] = None
        self.changes[(table, *row[: len(KEYS[table])])] = row

    def take(self, key: Key) -> None:
        self._do(f"delete from {key[0]} where {_where(key[0])}", key[1:])
        self.changes[key] = None

    def put_many(self, low: int, high: int, name: str, amount: Decimal) -> None:
        """All orders of a range at once, by one statement."""
        self._do(
            "update orders set name = %s, amount = %s where id between %s and %s",
            (name, amount, low, high),
        )
        for key in {
            k for k in (*self._rows, *self.changes) if k[0] == "orders" and low <= k[1] <= high
        }:
            if (row := self.get(key)) is not None:
                self.changes[key] = (row[0], name, amount, row[3])

    def take_many(self, low: int, high: int) -> None:
        """All orders of a range at once."""
        self._do("delete from orders where id between %s and %s", (low, high))
        self.changes.update(
            {
                key: None
                for key in (*self._rows, *self.changes)
                if key[0] == "orders" and low <= key[1] <= high
            }
        )

    def _do(self, statement: str, parameters: Row) -> None:
        self.statements.append((statement, parameters))


def _where(table: str) -> str:
    return " and ".join(f"{column} = %s" for column in KEYS[table])


class Changes:
    """Random transactions on a table whose size stays about the same."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._next = FIRST_NEW

    def first(self) -> Draft:
        """The rows that exist before any reader starts."""
        draft = Draft({}, 0)
        for number in range(1, ORDERS + 1):
            draft.put(self._order(number), ("orders", number))
        for number in range(ITEMS):
            draft.put((number // 3, number % 3, self._word()), ("items", number // 3, number % 3))
        for number in range(TAGS):
            draft.put(
                (f"{'tT'[number % 2]}ag {number // 2}", number),
                ("tags", f"{'tT'[number % 2]}ag {number // 2}"),
            )
        return draft

    def draw(self, rows: Rows, number: int) -> Draft:
        draft = Draft(rows, number)
        keys = sorted((key for key in rows if key != CLOCK), key=str)
        if self.chance.random() < 0.06:
            self._large(draft, len(rows))
        for _ in range(self.chance.choice([1, 2, 10])):
            key = self.chance.choice(keys)
            act = self.chance.choice(
                [
                    self._insert,
                    self._update,
                    self._update,
                    self._delete,
                    self._rekey,
                    self._again,
                    self._swap,
                ]
            )
            act(draft, key, self.chance.choice(keys))
        return draft

    def _large(self, draft: Draft, rows: int) -> None:
        if rows > ROWS_MAX:
            draft.take_many(FIRST_NEW, self._next)
        low = self.chance.randrange(ORDERS)
        draft.put_many(low, low + ORDERS // 2, self._word(), self._amount())
        for _ in range(self.chance.choice([5, 60])):
            self._insert(draft, ("orders", 0), ("orders", 0))

    def _insert(self, draft: Draft, like: Key, _other: Key) -> None:
        key = self._new_key(like[0])
        draft.put(self._row(key), key)

    def _update(self, draft: Draft, key: Key, _other: Key) -> None:
        if draft.get(key) is not None:
            draft.put(self._row(key), key)

    def _delete(self, draft: Draft, key: Key, _other: Key) -> None:
        if draft.get(key) is not None:
            draft.take(key)

    def _rekey(self, draft: Draft, key: Key, _other: Key) -> None:
        if draft.get(key) is not None:
            draft.put(self._row(self._new_key(key[0])), key)

    def _again(self, draft: Draft, key: Key, _other: Key) -> None:
        """Delete a row and insert it again with the same key."""
        if draft.get(key) is not None:
            draft.take(key)
            draft.put(self._row(key), key)

    def _swap(self, draft: Draft, key: Key, other: Key) -> None:
        """Swap the keys of two rows, through a third key."""
        if key[0] != other[0] or key == other or draft.get(key) is None or draft.get(other) is None:
            return
        between = self._new_key(key[0])
        draft.put(self._row(between), key)
        draft.put(self._row(key), other)
        draft.put(self._row(other), between)

    def _new_key(self, table: str) -> Key:
        """Below, within and above the keys that a first read finds."""
        self._next += 1
        sign = self.chance.choice([-1, 1])
        match table:
            case "orders":
                return ("orders", sign * self._next)
            case "items":
                return ("items", self.chance.randrange(ITEMS // 3), self._next)
            case _:
                return ("tags", f"{self.chance.choice('aTz')}ag {self._next}")

    def _row(self, key: Key) -> Row:
        match key[0]:
            case "orders":
                return self._order(key[1])
            case "items":
                return (*key[1:], self._word())
            case _:
                return (key[1], self.chance.choice([None, self.chance.randrange(1000)]))

    def _order(self, number: int) -> Row:
        note = self.chance.choice([None, self._word(), "long " * self.chance.randrange(200)])
        return (number, self.chance.choice([None, self._word()]), self._amount(), note)

    def _word(self) -> str:
        return self.chance.choice(WORDS)

    def _amount(self) -> Decimal:
        return Decimal(self.chance.randrange(-(10**6), 10**6)) / 100


class Writer(threading.Thread):
    """Commits one transaction after the other, and continues when the server is back.

    `history` has what each of them changed, from before its commit on.
    """

    def __init__(self, side: Side, chance: random.Random) -> None:
        super().__init__(name="writer", daemon=True)
        self.side = side
        self._changes = Changes(chance)
        self.rows: Rows = {}
        self.history: list[dict[Key, Row | None]] = []
        self.trouble: BaseException | None = None
        self._proposed: Draft | None = None
        self._stopped = threading.Event()
        with closing(side.connect()) as connection:
            self._commit(connection, self._changes.first())

    @property
    def last(self) -> int:
        """The number of the last transaction."""
        return len(self.history) - 1

    def stop(self) -> None:
        self._stopped.set()
        self.join(120)
        assert not self.is_alive(), "the writer hangs"
        if self.trouble is not None:
            raise self.trouble

    def run(self) -> None:
        """Run until `stop`, and until the outcome of the last transaction is known."""
        while not self._stopped.is_set() or self._proposed is not None:
            try:
                with closing(self.side.connect()) as connection:
                    self._settle(connection)
                    while not self._stopped.wait(PAUSE_S):
                        self._commit(
                            connection,
                            self._changes.draw(self.rows, len(self.history)),
                            whole=self._changes.chance.random() > 0.05,
                        )
            except LOST:
                self._stopped.wait(LOOK_S)
            except BaseException as error:
                self.trouble = error
                return

    def _commit(self, connection: Any, draft: Draft, *, whole: bool = True) -> None:
        """Not `whole`: it is rolled back."""
        with closing(connection.cursor()) as cursor:
            for statement, parameters in draft.statements:
                cursor.execute(statement, parameters)
        if not whole:
            connection.rollback()
            return
        self.history.append(draft.changes)
        self._proposed = draft
        connection.commit()
        self._accept(draft)

    def _accept(self, draft: Draft) -> None:
        apply(self.rows, draft.changes)
        self._proposed = None

    def _settle(self, connection: Any) -> None:
        """Whether a commit with an unknown outcome has happened."""
        if self._proposed is None:
            return
        with closing(connection.cursor()) as cursor:
            cursor.execute("select n from clock where id = 1")
            (found,) = cursor.fetchone()
        connection.rollback()
        if found == self._proposed.number:
            self._accept(self._proposed)
        else:
            self.history.pop()
            self._proposed = None


def apply(rows: Rows, changes: dict[Key, Row | None]) -> None:
    """The rows after these changes."""
    for key, row in changes.items():
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row


class Observer(threading.Thread):
    """Checks the target repeatedly, in one transaction, and records forbidden states."""

    def __init__(self, side: Side, writer: Writer) -> None:
        super().__init__(name="observer", daemon=True)
        self.side = side
        self._writer = writer
        self.number = -1
        self.looks = 0
        self.whole = False
        self.violations: list[str] = []
        self._rows: Rows = {}  # of the source at that number
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()
        self.join(120)
        assert not self.is_alive(), "the observer hangs"

    def run(self) -> None:
        while not self._stopped.wait(LOOK_S) and not self.violations:
            try:
                self._judge(*self.side.rows())
            except LOST:
                continue
            except BaseException as error:
                self.violations.append(f"the target cannot be judged: {error!r}")

    def _judge(self, rows: Rows, end: Any) -> None:
        self.looks += 1
        clock = rows.get(CLOCK)
        if clock is None:
            if rows or self.number >= 0:
                self.violations.append(
                    f"the target shows {len(rows)} rows and no commit, after it has shown commit"
                    f" {self.number}"
                )
            return
        number = clock[1]
        if not self.number <= number < len(self._writer.history):
            self.violations.append(
                f"the target went from commit {self.number} to {number}, of"
                f" {len(self._writer.history)}"
            )
            return
        for changes in self._writer.history[self.number + 1 : number + 1]:
            apply(self._rows, changes)
        self.number = number
        self.whole = self.whole or _all_read(end)
        wrong = [
            f"{key}: {row}, and was {self._rows.get(key)}"
            for key, row in rows.items()
            if self._rows.get(key) != row
        ]
        if self.whole:
            wrong += [
                f"{key} is missing, and was {row}"
                for key, row in self._rows.items()
                if key not in rows
            ]
        if wrong:
            self.violations.append(
                f"at commit {number} the target has {len(wrong)} rows as they never were, whole ="
                f" {self.whole}: {wrong[:5]}"
            )


def _all_read(end: Any) -> bool:
    """Whether all tables are read to their end, by what the sink has recorded with the rows."""
    return end is not None and all(
        t["read"] is not None and t["read"]["upto"] is None for t in end["tables"].values()
    )
