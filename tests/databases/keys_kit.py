"""Tables keyed by every type that a snapshot can be split by, and a random writer."""

import datetime
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from cdc_kit import make_source
from database_kit import Place

from tidegate.databases.errors import StatementRefused
from tidegate.databases.session import Session

NOON = datetime.datetime(2024, 3, 31, 0, 30)
_PIECES = (
    "a",
    "A",
    "ä",
    "a\u0308",
    "Å",
    "ss",
    "ß",
    "b",
    "B",
    "_",
    "-",
    "0",
    "9",
    "10",
    "'",
    '"',
    "\\",
    "%",
    "z",
    "é",
    "E",
    " ",
    "\t",
    "中",
    "😀",
)


def text(chance: random.Random) -> str:
    """Return a random text.

    It has cases, composed and decomposed accents, trailing spaces and quotes, which collations
    order differently.
    """
    return "".join(chance.choice(_PIECES) for _ in range(chance.randint(0, 4)))


def latin(chance: random.Random) -> str:
    return "".join(chance.choice("aAäÄbBzZéß€_ ") for _ in range(chance.randint(0, 4)))


def data(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randint(0, 3))


def data_16(chance: random.Random) -> bytes:
    return chance.randbytes(15) + chance.choice((b"\0", b"a"))


def uuid(chance: random.Random) -> str:
    return str(UUID(int=chance.getrandbits(128), version=chance.choice((1, 4))))


def decimal(chance: random.Random) -> Decimal:
    return Decimal(chance.randint(-20_000, 20_000)) / 8


def large(chance: random.Random) -> int:
    return 2**64 - 1 - chance.randint(0, 5000)


def day(chance: random.Random) -> str:
    return str((NOON + datetime.timedelta(days=chance.randint(0, 4000))).date())


def moment(chance: random.Random) -> str:
    return str(
        NOON
        + datetime.timedelta(
            seconds=chance.randint(0, 10**8), microseconds=chance.randint(0, 999_999)
        )
    )


@dataclass(frozen=True, slots=True)
class Keyed:
    """A table `keyed (k, n, v)`; with `and_n`, n is the second column of its key."""

    place: str
    type: str
    value: Callable[[random.Random], Any]
    and_n: bool = False

    def __str__(self) -> str:
        return f"{self.place} {self.type[:45]}{' and more' if self.and_n else ''}"

    def make(self, place: Place) -> None:
        full = ["alter table keyed replica identity full"] if self.place == "pg" else []
        key = "k, n" if self.and_n else "k"
        place.execute(
            f"create table keyed (k {self.type} not null, n int not null, v varchar(40), primary"
            f" key ({key}))",
            *full,
        )


def cdc(place: Place, table: str = "keyed", **more: Any) -> Any:
    """Return the CDC source of a table."""
    postgres = "postgresql" in place.url
    path = f"{place.database}.public.{table}" if postgres else f"{place.database}.{table}"
    slot = {"slot.name": f"keys_{place.database}"} if postgres else {}
    config = (
        {"table-names-config": [{"table": path, **more.pop("config")}]} if "config" in more else {}
    )
    return make_source(
        "Postgres-CDC" if postgres else "MySQL-CDC",
        {**place.options(**more), "table-names": [path], **slot, **config},
    )


def current_rows(source: Any) -> list[dict[str, Any]]:
    """Return the rows of the database, read like a snapshot in one chunk."""
    ((_, cdc_table),) = source.cdc_tables.items()
    types = {c.name: c.type for c in cdc_table.table.columns}
    selected = ", ".join(
        source.dialect.expression(c, types[c.name]) for c in cdc_table.info.columns
    )
    batches = source.dialect.batches(
        source.address,
        f"select {selected} from {source.dialect.qualified(cdc_table.info.name)}",
        list(types.items()),
        0,
    )
    found = [row for batch in batches for row in batch.to_pylist()]
    return sorted(
        found, key=lambda row: tuple(str(row[name]) for name in cdc_table.table.primary_key)
    )


class RandomWriter:
    """Random inserts, updates, deletes and changes of keys.

    Keys that are equal for the collation are rejected by the database, and skipped.
    """

    def __init__(self, session: Session, keyed: Keyed, seed: int) -> None:
        self._session = session
        self._keyed = keyed
        self._chance = random.Random(seed)
        self._number = 0

    def fill(self, rows: int) -> None:
        with self._session.transaction():
            ignore, conflict = (
                ("", " on conflict do nothing") if self._keyed.place == "pg" else (" ignore", "")
            )
            values = [(self._keyed.value(self._chance), n, "first") for n in range(rows)]
            self._session.execute_many(
                f"insert{ignore} into keyed (k, n, v) values (%s, %s, %s){conflict}", values
            )

    def write(self, times: int = 12) -> None:
        for _ in range(times):
            self._number += 1
            with suppress(StatementRefused):
                self._once(self._chance.random(), 1000 + self._number)
        self._session.execute(
            "update keyed set v = %s where n = 500", (f"turn {self._number}",)
        )  # a row that some tests have

    def _once(self, what: float, fresh: int) -> None:
        at, value = self._chance.randrange(150), self._keyed.value(self._chance)
        if what < 0.3:
            self._session.execute(
                "insert into keyed (k, n, v) values (%s, %s, %s)", (value, fresh, "new")
            )
        elif what < 0.55:
            self._session.execute(
                "update keyed set v = %s where n between %s and %s",
                (f"changed {fresh}", at, at + 4),
            )
        elif what < 0.75:
            self._session.execute("delete from keyed where n = %s", (at,))
        else:
            self._session.execute(
                "update keyed set k = %s, v = %s where n = %s", (value, f"moved {fresh}", at)
            )
