"""PostgreSQL as a target: column capacities, and names, which it truncates to 63 bytes."""

from typing import ClassVar

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.postgres.dialect import base_type
from tidegate.databases.session import Session
from tidegate.databases.targets.rules import SourceColumn, TargetRules, TargetTable, UniqueIndex
from tidegate.databases.targets.type_fit import ColumnCapacity, StoredKind
from tidegate.databases.types import base_and_sizes

_WHOLE = {"smallint": 16, "integer": 32, "bigint": 64}
_OTHERS = {
    "boolean": ColumnCapacity(kind=StoredKind.BOOLEAN),
    "real": ColumnCapacity(kind=StoredKind.FLOAT, digits=24),
    "double precision": ColumnCapacity(kind=StoredKind.FLOAT, digits=53),
    "money": ColumnCapacity(kind=StoredKind.DECIMAL, digits=19, scale=2),
    "date": ColumnCapacity(kind=StoredKind.DATE),
    "bytea": ColumnCapacity(kind=StoredKind.BYTES),
    "text": ColumnCapacity(kind=StoredKind.TEXT),
    "name": ColumnCapacity(kind=StoredKind.TEXT, length=63),
    "oid": ColumnCapacity(kind=StoredKind.WHOLE, low=0, high=2**32 - 1),
}
_TIMES = {
    "time without time zone": StoredKind.TIME,
    "timestamp without time zone": StoredKind.TIMESTAMP,
    "timestamp with time zone": StoredKind.MOMENT,
}
_KINDS = {"v": "view", "m": "materialized view", "S": "sequence", "c": "composite type"}
_UNIQUES = """
select i.indexrelid::regclass::text, a.attname, i.indisunique and i.indimmediate
  and i.indisvalid and i.indpred is null
from pg_index i cross join lateral unnest(i.indkey) with ordinality k(number, place)
left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number and a.attnum > 0
where i.indrelid = to_regclass(%s) and (i.indisunique or i.indisexclusion)
  and k.place <= i.indnkeyatts
order by i.indisprimary desc, i.indexrelid, k.place"""
_CASCADES = (
    "select conrelid::regclass || ' (' || conname || ')' from pg_constraint where confrelid ="
    " to_regclass(%s) and confdeltype in ('c', 'n', 'd') order by 1"
)
_LOOSE = """
select a.attname from pg_attribute a join pg_collation c on c.oid = a.attcollation
where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped
  and not c.collisdeterministic"""


class PostgresRules(TargetRules):
    keeps_nan: ClassVar[bool] = True
    keeps_infinity: ClassVar[bool] = True
    years: ClassVar[tuple[int, int] | None] = None
    names_max: ClassVar[int] = 63
    names_unit: ClassVar[str] = "bytes"
    ignores_column_case: ClassVar[bool] = False

    def too_long(self, name: str) -> bool:
        """Count bytes; the server truncates longer names silently."""
        return len(name.encode()) > self.names_max

    def ignores_table_case(
        self,
        session: Session,  # noqa: ARG002  # names are always quoted
    ) -> bool:
        return False

    def capacity(self, column: NativeColumn) -> ColumnCapacity:
        """Parse the native type, a list by its element type."""
        if column.native.endswith("[]"):
            element = self.capacity(
                NativeColumn(name=column.name, native=column.native.removesuffix("[]"))
            )
            return ColumnCapacity(kind=StoredKind.TEXT, element=element)
        base, sizes = base_type(column.native), base_and_sizes(column.native)[1]
        if base in _WHOLE:
            return ColumnCapacity(
                kind=StoredKind.WHOLE,
                low=-(2 ** (_WHOLE[base] - 1)),
                high=2 ** (_WHOLE[base] - 1) - 1,
            )
        if base == "numeric":
            return ColumnCapacity(
                kind=StoredKind.DECIMAL,
                digits=sizes[0] if sizes else 0,
                scale=(sizes[1] if len(sizes) > 1 else 0) if sizes else None,
            )
        if base in _TIMES:
            return ColumnCapacity(kind=_TIMES[base], fraction=sizes[0] if sizes else 6)
        if base in ("character varying", "character", "bpchar"):
            return ColumnCapacity(
                kind=StoredKind.TEXT,
                length=sizes[0] if sizes else 0,
                fixed=base != "character varying",
            )
        return _OTHERS.get(base, ColumnCapacity(kind=StoredKind.ANY))

    def relation_kind(self, session: Session, name: TableName) -> str:
        return _KINDS.get(
            str(
                session.scalar(
                    "select relkind::text from pg_class where oid = to_regclass(%s)",
                    (_quoted(name),),
                )
                or ""
            ),
            "",
        )

    def read_target(self, session: Session, info: TableInfo) -> TargetTable:
        path = _quoted(info.name)
        indexes: dict[str, list[str | None]] = {}
        whole: dict[str, bool] = {}
        for index, column, usable in session.query(_UNIQUES, (path,)):
            indexes.setdefault(index, []).append(column)
            whole[index] = bool(usable)
        uniques = tuple(
            UniqueIndex(name=name, columns=tuple(columns), identifies_rows=whole[name])
            for name, columns in indexes.items()
        )
        cascades = tuple(str(text) for (text,) in session.query(_CASCADES, (path,)))
        loose = frozenset(str(name) for (name,) in session.query(_LOOSE, (path,)))
        return TargetTable(
            info=info,
            kind=self.relation_kind(session, info.name),
            uniques=uniques,
            cascades=cascades,
            merging_columns=loose,
        )

    def why_keys_merge(
        self,
        column: NativeColumn,
        origin: SourceColumn | None,  # noqa: ARG002  # the source has another type
    ) -> str:
        """Only for citext; collations are covered by `TargetTable.merging_columns`."""
        return "its type citext ignores case" if base_type(column.native) == "citext" else ""

    def ignores_trailing_blanks(self, column: NativeColumn, origin: SourceColumn | None) -> bool:
        """Whether the column is CHAR, unless the source's is too."""
        padded = ("character", "bpchar", "char")
        return base_type(column.native) in padded and (
            origin is None or base_type(origin.native) not in padded
        )


def _quoted(name: TableName) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in (name.schema, name.table))
