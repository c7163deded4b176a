"""MariaDB and MySQL as a target: column capacities, key comparison, and SQL modes.

Without these modes the servers change values silently.
"""

from collections.abc import Sequence
from typing import ClassVar

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.errors import TransientDatabaseError
from tidegate.databases.session import Session
from tidegate.databases.targets.rules import (
    KeyTooLong,
    SourceColumn,
    SourceColumns,
    TargetRules,
    TargetTable,
    UniqueIndex,
    qualified_names,
)
from tidegate.databases.targets.type_fit import ColumnCapacity, StoredKind
from tidegate.databases.types import base_and_sizes
from tidegate.model.types import Column, TypeName

INDEX_BYTES_MAX = 3072
"""InnoDB's limit for all columns of an index together."""
CHARACTER_BYTES = 4
OTHER_KEY_BYTES = 32
"""More than any number or timestamp takes in an index."""
STRICT = (
    "STRICT_ALL_TABLES",
    "NO_ZERO_IN_DATE",
    "NO_ZERO_DATE",
    "ERROR_FOR_DIVISION_BY_ZERO",
    "NO_AUTO_VALUE_ON_ZERO",
)
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
_KEEPS = {
    "date": StoredKind.DATE,
    "time": StoredKind.TIME,
    "datetime": StoredKind.TIMESTAMP,
    "timestamp": StoredKind.MOMENT,
    "char": StoredKind.TEXT,
    "varchar": StoredKind.TEXT,
    "binary": StoredKind.BYTES,
    "varbinary": StoredKind.BYTES,
}
_DECIMALS = ("decimal", "numeric", "dec", "fixed")
_LARGE = {
    "tinytext": 255,
    "text": 65_535,
    "mediumtext": 16_777_215,
    "tinyblob": 255,
    "blob": 65_535,
    "mediumblob": 16_777_215,
}
# Warnings for a changed value: null, out of range, truncated, incorrect, too long, default.
_CHANGED = (1048, 1263, 1264, 1265, 1292, 1300, 1364, 1366, 1367, 1406, 1411, 1441, 3140)
_EXACT = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""Collations in which texts are equal only if their bytes are; the first available one is used."""
_UNIQUES = """
select index_name, column_name, sub_part from information_schema.statistics
where table_schema = %s and table_name = %s and non_unique = 0
  order by index_name = 'PRIMARY' desc, index_name, seq_in_index"""
_CASCADES = """
select concat(constraint_schema, '.', table_name, ' (', constraint_name, ')')
  from information_schema.referential_constraints
where unique_constraint_schema = %s and referenced_table_name = %s
  and delete_rule in ('CASCADE', 'SET NULL', 'SET DEFAULT') order by 1"""


def exact_collation(session: Session) -> str:
    """Find the collation that distinguishes all texts.

    On servers without such a collation, the one that ignores only trailing blanks.
    """
    names = ", ".join(f"'{name}'" for name in _EXACT)
    found = {
        str(name)
        for (name,) in session.query(
            "select collation_name from information_schema.collations where collation_name in"
            f" ({names})"
        )
    }
    return next((name for name in _EXACT if name in found), "utf8mb4_bin")


class MySqlRules(TargetRules):
    names_max: ClassVar[int] = 64
    ignores_column_case: ClassVar[bool] = True

    def ignores_table_case(self, session: Session) -> bool:
        """Read the setting from the server once."""
        return str(session.scalar("select @@lower_case_table_names")) != "0"

    def capacity(self, column: NativeColumn) -> ColumnCapacity:
        """Parse the native type.

        The server itself rejects characters that a column's character set lacks.
        """
        text = column.native.lower()
        base, sizes = base_and_sizes(text)
        base = (
            base.removesuffix(" zerofill").removesuffix(" unsigned").removesuffix(" signed").strip()
        )
        unsigned = "unsigned" in text or "zerofill" in text
        if base in _BITS:
            bits = _BITS[base]
            return ColumnCapacity(
                kind=StoredKind.WHOLE,
                low=0 if unsigned else -(2 ** (bits - 1)),
                high=2 ** (bits if unsigned else bits - 1) - 1,
            )
        if base == "year":
            return ColumnCapacity(
                kind=StoredKind.WHOLE, low=1901, high=2155
            )  # numbers below 100 would be read as two-digit years
        if base in _DECIMALS:
            return ColumnCapacity(
                kind=StoredKind.DECIMAL,
                digits=sizes[0] if sizes else 10,
                scale=sizes[1] if len(sizes) > 1 else 0,
            )
        if base in ("float", "double", "double precision", "real"):
            return ColumnCapacity(
                kind=StoredKind.FLOAT,
                digits=24 if base == "float" else 53,
                scale=sizes[1] if len(sizes) > 1 else None,
            )
        if base in _LARGE:
            return ColumnCapacity(
                kind=StoredKind.TEXT if "text" in base else StoredKind.BYTES
            )  # the server rejects longer ones
        keeps = _KEEPS.get(base, StoredKind.TEXT if base == "longtext" else StoredKind.ANY)
        size = sizes[0] if sizes else 0
        if keeps in (StoredKind.TEXT, StoredKind.BYTES):
            return ColumnCapacity(
                kind=keeps,
                length=size or (1 if base in _KEEPS else 0),
                fixed=base in ("char", "binary"),
            )
        # A datetime stores timestamps in UTC: new tables use it for timestamps with a zone.
        return ColumnCapacity(
            kind=keeps, fraction=size, distinguishes_zones=keeps is StoredKind.MOMENT
        )

    def relation_kind(self, session: Session, name: TableName) -> str:
        sql = (
            "select table_type from information_schema.tables where table_schema = %s and"
            " table_name = %s"
        )
        kind = str(session.scalar(sql, qualified_names(name)) or "")
        return "" if kind in ("BASE TABLE", "SYSTEM VERSIONED") else kind.lower()

    def read_target(self, session: Session, info: TableInfo) -> TargetTable:
        names = qualified_names(info.name)
        indexes: dict[str, list[str | None]] = {}
        prefixed: set[str] = set()
        for index, column, part in session.query(_UNIQUES, names):
            indexes.setdefault(index, []).append(column)
            if part is not None:
                prefixed.add(index)
        uniques = tuple(
            UniqueIndex(name=name, columns=tuple(columns), identifies_rows=name not in prefixed)
            for name, columns in indexes.items()
        )
        cascades = tuple(str(text) for (text,) in session.query(_CASCADES, names))
        return TargetTable(
            info=info,
            kind=self.relation_kind(session, info.name),
            uniques=uniques,
            cascades=cascades,
        )

    def why_keys_merge(self, column: NativeColumn, origin: SourceColumn | None) -> str:
        """Collations that ignore case or accents, unless the source has the same collation."""
        collation = column.collation.lower()
        if (
            not collation
            or collation.endswith("_bin")
            or (origin is not None and origin.collation.lower() == collation)
        ):
            return ""
        return f"its collation {column.collation} ignores case or accents"

    def ignores_trailing_blanks(
        self,
        column: NativeColumn,
        origin: SourceColumn | None,  # noqa: ARG002  # texts of any source
    ) -> bool:
        """All old collations do, and all CHAR columns."""
        collation = column.collation.lower()
        if base_and_sizes(column.native)[0] == "char":
            return True
        return bool(collation) and "nopad" not in collation and "_0900_" not in collation

    def column_type(self, column: Column, native: str, origin: SourceColumn | None) -> str:
        """Use datetime for timestamps with a zone, since TIMESTAMP only covers 1970 to 2038.

        Values from a TIMESTAMP column of the source always fit.
        """
        if column.type.name is not TypeName.TIMESTAMP_TZ or (
            origin is not None and base_and_sizes(origin.native)[0] == "timestamp"
        ):
            return native
        return "datetime(6)"

    def key_column_types(
        self,
        columns: Sequence[Column],
        natives: Sequence[str],
        origins: SourceColumns,
        session: Session,
        *,
        indexed: bool,
    ) -> list[str]:
        """Size texts and bytes like the source, or as an index allows; compared by all bytes."""
        sized = [
            n
            for n, column in enumerate(columns)
            if column.type.name in (TypeName.STRING, TypeName.BYTES, TypeName.BINARY_VECTOR)
        ]
        if not sized:
            return list(natives)
        texts = [columns[n].type.name is TypeName.STRING for n in sized]
        collation = exact_collation(session) if any(texts) else ""
        if not indexed:
            wide = {
                n: f"longtext character set utf8mb4 collate {collation}"
                for n, text in zip(sized, texts, strict=True)
                if text
            }
            return [wide.get(n, native) for n, native in enumerate(natives)]
        widths = [CHARACTER_BYTES if text else 1 for text in texts]
        known = [
            origins[columns[n].name].length if columns[n].name in origins else 0 for n in sized
        ]
        room = INDEX_BYTES_MAX - OTHER_KEY_BYTES * (len(columns) - len(sized))
        taken = sum(length * width for length, width in zip(known, widths, strict=True))
        if taken > room:
            key_text = ", ".join(
                f"{columns[n].name} ({origins[columns[n].name].native})"
                for n, length in zip(sized, known, strict=True)
                if length
            )
            raise KeyTooLong(f"the key {key_text} needs {taken} bytes, but an index allows {room}")
        free = known.count(0)
        each = (room - taken) // free if free else 0
        found = list(natives)
        for n, text, width, length in zip(sized, texts, widths, known, strict=True):
            size = length or each // width
            found[n] = (
                f"varchar({size}) character set utf8mb4 collate {collation}"
                if text
                else f"varbinary({size})"
            )
        return found

    def prepare_session(self, session: Session) -> None:
        """Store 0 in AUTO_INCREMENT columns, and check the SQL modes.

        A proxy may have removed modes that all our sessions set.
        """
        session.execute(
            "set session sql_mode = concat(@@session.sql_mode, ',NO_AUTO_VALUE_ON_ZERO')"
        )
        modes = str(session.scalar("select @@session.sql_mode")).upper().split(",")
        if lacking := [mode for mode in STRICT if mode not in modes]:
            why = (
                f"the session lacks the sql_mode {', '.join(lacking)} although it was set: values"
                " that do not fit would be changed"
            )
            raise TransientDatabaseError(str(session.address), why)

    def altered_values(self, session: Session) -> str:
        """Read warnings: strict mode still rounds and trims, and LOAD DATA LOCAL only warns."""
        return next(
            (
                f"{message} ({code})"
                for _, code, message in session.query("show warnings")
                if int(code) in _CHANGED
            ),
            "",
        )
