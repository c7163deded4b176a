"""SQLite as a target: columns store any value, but affinity may convert texts or round numbers."""

from typing import ClassVar

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.session import Session
from tidegate.databases.sqlite.dialect import INTEGER_DIGITS, REAL_DIGITS
from tidegate.databases.targets.rules import TargetRules, TargetTable, UniqueIndex
from tidegate.databases.targets.type_fit import ColumnCapacity, StoredKind


class SqliteRules(TargetRules):
    keeps_infinity: ClassVar[bool] = True
    names_max: ClassVar[int] = 200
    ignores_column_case: ClassVar[bool] = True

    def ignores_table_case(
        self,
        session: Session,  # noqa: ARG002  # a file is like any other
    ) -> bool:
        return True

    def capacity(self, column: NativeColumn) -> ColumnCapacity:
        """Derive the affinity of the declared type with SQLite's rules."""
        declared = column.native.upper()
        if "INT" in declared:
            return ColumnCapacity(
                kind=StoredKind.DECIMAL,
                digits=REAL_DIGITS,
                whole_digits=INTEGER_DIGITS,
                scale=None,
                numeric_texts=True,
            )
        if any(word in declared for word in ("CHAR", "CLOB", "TEXT", "BLOB")) or not declared:
            return ColumnCapacity(kind=StoredKind.ANY)
        if any(word in declared for word in ("REAL", "FLOA", "DOUB")):
            return ColumnCapacity(kind=StoredKind.FLOAT, digits=53, numeric_texts=True)
        if any(word in declared for word in ("DATE", "TIME")):
            return ColumnCapacity(kind=StoredKind.ANY, numeric_texts=True)
        return ColumnCapacity(
            kind=StoredKind.DECIMAL,
            digits=REAL_DIGITS,
            whole_digits=INTEGER_DIGITS,
            scale=None,
            numeric_texts=True,
        )

    def relation_kind(self, session: Session, name: TableName) -> str:
        kind = str(
            session.scalar(
                "select type from sqlite_master where type in ('table', 'view') and name = %s"
                " collate nocase",
                (name.table,),
            )
            or ""
        )
        return "" if kind == "table" else kind

    def read_target(self, session: Session, info: TableInfo) -> TargetTable:
        quoted = '"' + info.name.table.replace('"', '""') + '"'
        uniques = (
            [UniqueIndex(name="primary key", columns=info.primary_key)] if info.primary_key else []
        )
        loose: set[str] = set()
        for _, index, unique, origin, partial, *_ in session.query(f"pragma index_list({quoted})"):
            if not unique:
                continue
            name = '"' + str(index).replace('"', '""') + '"'
            parts = [row for row in session.query(f"pragma index_xinfo({name})") if row[5]]
            loose |= {
                str(row[2])
                for row in parts
                if row[2] is not None and str(row[4]).upper() != "BINARY"
            }
            if origin != "pk":
                uniques.append(
                    UniqueIndex(
                        name=str(index),
                        columns=tuple(row[2] for row in parts),
                        identifies_rows=not partial,
                    )
                )
        return TargetTable(
            info=info,
            kind=self.relation_kind(session, info.name),
            uniques=tuple(uniques),
            merging_columns=frozenset(loose),
        )
