"""PostgreSQL as a target: what its columns keep, and names, which it cuts at 63 bytes."""

from typing import ClassVar

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.postgres.dialect import plain
from tidegate.databases.session import Session
from tidegate.databases.targets.type_fit import Holds, Keeps
from tidegate.databases.targets.rules import SourceColumn, TargetRules, TargetTable, UniqueIndex
from tidegate.databases.types import base_and_sizes

_WHOLE = {"smallint": 16, "integer": 32, "bigint": 64}
_OTHERS = {
    "boolean": Holds(keeps=Keeps.BOOLEAN),
    "real": Holds(keeps=Keeps.FLOAT, digits=24),
    "double precision": Holds(keeps=Keeps.FLOAT, digits=53),
    "money": Holds(keeps=Keeps.DECIMAL, digits=19, scale=2),
    "date": Holds(keeps=Keeps.DATE),
    "bytea": Holds(keeps=Keeps.BYTES),
    "text": Holds(keeps=Keeps.TEXT),
    "name": Holds(keeps=Keeps.TEXT, length=63),
    "oid": Holds(keeps=Keeps.WHOLE, low=0, high=2**32 - 1),
}
_TIMES = {
    "time without time zone": Keeps.TIME,
    "timestamp without time zone": Keeps.TIMESTAMP,
    "timestamp with time zone": Keeps.MOMENT,
}
_KINDS = {"v": "view", "m": "materialized view", "S": "sequence", "c": "composite type"}
_UNIQUES = """
select i.indexrelid::regclass::text, a.attname, i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null
from pg_index i cross join lateral unnest(i.indkey) with ordinality k(number, place)
left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number and a.attnum > 0
where i.indrelid = to_regclass(%s) and (i.indisunique or i.indisexclusion) and k.place <= i.indnkeyatts
order by i.indisprimary desc, i.indexrelid, k.place"""
_CASCADES = (
    "select conrelid::regclass || ' (' || conname || ')' from pg_constraint where confrelid ="
    " to_regclass(%s) and confdeltype in ('c', 'n', 'd') order by 1"
)
_LOOSE = """
select a.attname from pg_attribute a join pg_collation c on c.oid = a.attcollation
where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped and not c.collisdeterministic"""


class PostgresRules(TargetRules):
    keeps_nan: ClassVar[bool] = True
    keeps_infinity: ClassVar[bool] = True
    years: ClassVar[tuple[int, int] | None] = None
    names_max: ClassVar[int] = 63
    names_unit: ClassVar[str] = "bytes"
    folds_columns: ClassVar[bool] = False

    def too_long(self, name: str) -> bool:
        """By its bytes; the server cuts longer names without a word."""
        return len(name.encode()) > self.names_max

    def folds_tables(self, session: Session) -> bool:  # noqa: ARG002  # names are always quoted
        return False

    def holds(self, column: NativeColumn) -> Holds:
        """By the whole type, a list by its elements."""
        if column.native.endswith("[]"):
            element = self.holds(
                NativeColumn(name=column.name, native=column.native.removesuffix("[]"))
            )
            return Holds(keeps=Keeps.TEXT, element=element)
        base, sizes = plain(column.native), base_and_sizes(column.native)[1]
        if base in _WHOLE:
            return Holds(
                keeps=Keeps.WHOLE, low=-(2 ** (_WHOLE[base] - 1)), high=2 ** (_WHOLE[base] - 1) - 1
            )
        if base == "numeric":
            return Holds(
                keeps=Keeps.DECIMAL,
                digits=sizes[0] if sizes else 0,
                scale=(sizes[1] if len(sizes) > 1 else 0) if sizes else None,
            )
        if base in _TIMES:
            return Holds(keeps=_TIMES[base], fraction=sizes[0] if sizes else 6)
        if base in ("character varying", "character", "bpchar"):
            return Holds(
                keeps=Keeps.TEXT, length=sizes[0] if sizes else 0, fixed=base != "character varying"
            )
        return _OTHERS.get(base, Holds(keeps=Keeps.ANY))

    def kind_of(self, session: Session, name: TableName) -> str:
        """By the server's own catalogue."""
        return _KINDS.get(
            str(
                session.one(
                    "select relkind::text from pg_class where oid = to_regclass(%s)",
                    (_quoted(name),),
                )
                or ""
            ),
            "",
        )

    def relation(self, session: Session, info: TableInfo) -> TargetTable:
        """By the server's own catalogue."""
        path = _quoted(info.name)
        indexes: dict[str, list[str | None]] = {}
        whole: dict[str, bool] = {}
        for index, column, usable in session.query(_UNIQUES, (path,)):
            indexes.setdefault(index, []).append(column)
            whole[index] = bool(usable)
        uniques = tuple(
            UniqueIndex(name=name, columns=tuple(columns), whole=whole[name])
            for name, columns in indexes.items()
        )
        cascades = tuple(str(text) for (text,) in session.query(_CASCADES, (path,)))
        loose = frozenset(str(name) for (name,) in session.query(_LOOSE, (path,)))
        return TargetTable(
            info=info,
            kind=self.kind_of(session, info.name),
            uniques=uniques,
            cascades=cascades,
            loose=loose,
        )

    def merges_keys(self, column: NativeColumn, origin: SourceColumn | None) -> str:  # noqa: ARG002  # the source has another type
        """Only a type that passes over cases; collations that do are told by `Relation.loose`."""
        return "its type citext passes over cases" if plain(column.native) == "citext" else ""

    def pads_keys(self, column: NativeColumn, origin: SourceColumn | None) -> bool:
        """Texts of a fixed length, unless those of the source are such too."""
        padded = ("character", "bpchar", "char")
        return plain(column.native) in padded and (
            origin is None or plain(origin.native) not in padded
        )


def _quoted(name: TableName) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (name.schema, name.table))
