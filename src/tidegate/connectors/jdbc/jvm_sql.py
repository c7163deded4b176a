"""Statements of sinks behind JDBC drivers: record, staging, merge.

Pure; called by jvm_committer.py. Spark fills a staging table with each batch; its rows are merged
into the target in one transaction with the sink's record. Of several changes of one key only the
last one stays in the staging table, so that the merge sees every key once: no database needs window
functions or a query as the source of the merge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tidegate.model.types import RowKind

RECORD = "tidegate_sink_record"
ADDED_COLUMNS = {"fence_token": "varchar(100)", "installation": "varchar(40)"}
"""Columns that record tables of older releases lack."""
SEQ, KIND = "tg_seq", "tg_kind"
_REMOVES = f"({RowKind.UPDATE_BEFORE.code}, {RowKind.DELETE.code})"
_WHOLE = "decimal(19)"  # Oracle has no bigint


class Brand(StrEnum):
    """A database whose SQL is known; GENERIC is any other one."""

    ORACLE = "oracle"
    DB2 = "db2"
    SQLSERVER = "sqlserver"
    H2 = "h2"
    DERBY = "derby"
    GENERIC = "generic"

    @staticmethod
    def of(url: str) -> "Brand":
        name = url.strip().removeprefix("jdbc:").partition(":")[0].lower()
        return next((brand for brand in Brand if brand.value == name), Brand.GENERIC)

    @property
    def stages_large_texts(self) -> bool:
        """Whether Spark writes texts as large objects, whose NULLs fit into no other column."""
        return self in (Brand.DERBY, Brand.DB2)

    @property
    def has_known_transactions(self) -> bool:
        """Whether its transactions are known to include rows and record."""
        return self is not Brand.GENERIC


def create_record_table(brand: Brand) -> str:
    text = {Brand.SQLSERVER: "varchar(max)", Brand.GENERIC: "varchar(4000)"}.get(brand, "clob")
    return (
        f"create table {RECORD} (id varchar(64) not null primary key, lineage varchar(200), job_id"
        f" {_WHOLE}, pipeline_id {_WHOLE}, sink_name varchar(500), checkpoint_id {_WHOLE} not null,"
        f" generation_id {_WHOLE} not null, offsets_json {text}, prepared_json {text}, "
        + ", ".join(f"{name} {kind}" for name, kind in ADDED_COLUMNS.items())
        + ")"
    )


def add_record_column(brand: Brand, name: str) -> str:
    """Statement that adds a column that older releases lack to the record table."""
    return (
        f"alter table {RECORD} add"
        f" {'' if brand in (Brand.SQLSERVER, Brand.ORACLE) else 'column '}"
        f"{name} {ADDED_COLUMNS[name]}"
    )


def create_stage(
    brand: Brand,
    stage: str,
    place: str,
    columns: Sequence[str],
    large: frozenset[int] = frozenset(),
) -> str:
    """Statement for a staging table with the target's column types.

    Empty if the database's SQL is not known, so that Spark creates the table. `large` columns are
    staged as large objects and converted when they are merged.
    """
    # A CASE is nullable, so that no column is NOT NULL or an identity column. H2 copies neither,
    # and would treat the CASE as a null without a type.
    cases = [
        column if brand is Brand.H2 else f"case when 1 = 0 then {column} end" for column in columns
    ]
    made = [
        f"cast(0 as {_WHOLE})",
        "cast(0 as int)",
        *(f"cast({case} as clob)" if n in large else case for n, case in enumerate(cases)),
    ]
    names = [SEQ, KIND, *(stage_column(number) for number in range(len(columns)))]
    select = ", ".join(
        f"{expression} as {name}" for expression, name in zip(made, names, strict=True)
    )
    match brand:
        case Brand.GENERIC:
            return ""
        case Brand.SQLSERVER:
            return f"select {select} into {stage} from {place} where 1 = 0"
        case Brand.DERBY | Brand.H2:
            return f"create table {stage} as select {select} from {place} with no data"
        case Brand.DB2:
            return f"create table {stage} as (select {select} from {place}) with no data"
        case Brand.ORACLE:
            return f"create table {stage} as select {select} from {place} where 1 = 0"


def stage_column(number: int) -> str:
    """The name of a staged column."""
    return f"c{number}"


@dataclass(frozen=True, kw_only=True, slots=True)
class JvmMergeSql:
    """Statements that merge one staging table into its target. Names are written in SQL."""

    brand: Brand
    target: str
    stage: str
    columns: tuple[str, ...]
    key: tuple[int, ...]
    """Indexes of the key's columns; if empty, rows are only inserted."""
    upsert: bool
    large: frozenset[int] = frozenset()

    def statements(self) -> list[str]:
        """The statements in order, for one transaction."""
        if not self.key:
            return [self._insert("")]
        pruned = (
            f"exists (select 1 from {self.stage} later where {self._same(self.stage, 'later')} and"
            f" later.{SEQ} > {self.stage}.{SEQ})"
        )
        gone = (
            f"delete from {self.target} where exists"
            f" (select 1 from {self.stage} s where s.{KIND} in"
            f" {_REMOVES} and {self._same_as_target('s')})"
        )
        first = [
            f"delete from {self.stage} where {pruned}",
            gone,
            f"delete from {self.stage} where {KIND} in {_REMOVES}",
        ]
        if not self.upsert:
            changed = f"s.{KIND} = {RowKind.UPDATE_AFTER.code}"
            replaced = (
                f"delete from {self.target} where exists (select 1 from {self.stage} s where"
                f" {changed} and {self._same_as_target('s')})"
            )
            return [*first, replaced, self._insert("")]
        return [
            *first,
            *(self._update_then_insert() if self.brand is Brand.GENERIC else [self._merge()]),
        ]

    @property
    def puts(self) -> int:
        """How many of the last statements write rows; each row is written by one of them."""
        both = (
            bool(self.key) and self.upsert and self.brand is Brand.GENERIC and bool(self._others())
        )
        return 2 if both else 1

    def _same(self, left: str, right: str) -> str:
        return " and ".join(
            f"{left}.{stage_column(n)} = {right}.{stage_column(n)}" for n in self.key
        )

    def _same_as_target(self, stage: str) -> str:
        return " and ".join(
            f"{self.target}.{self.columns[n]} = {stage}.{stage_column(n)}" for n in self.key
        )

    def _value(self, number: int, stage: str = "") -> str:
        """SQL expression of a staged value, converted for the target."""
        column = stage + stage_column(number)
        return f"cast({column} as varchar(32672))" if number in self.large else column

    def _others(self) -> list[int]:
        return [n for n in range(len(self.columns)) if n not in self.key]

    def _insert(self, where: str) -> str:
        chosen = ", ".join(self._value(n) for n in range(len(self.columns)))
        return (
            f"insert into {self.target} ({', '.join(self.columns)}) select {chosen} from"
            f" {self.stage}{where}"
        )

    def _merge(self) -> str:
        same = " and ".join(f"t.{self.columns[n]} = s.{stage_column(n)}" for n in self.key)
        sets = ", ".join(f"{self.columns[n]} = {self._value(n, 's.')}" for n in self._others())
        update = f" when matched then update set {sets}" if sets else ""
        given = ", ".join(self._value(n, "s.") for n in range(len(self.columns)))
        insert = f" when not matched then insert ({', '.join(self.columns)}) values ({given})"
        end = ";" if self.brand is Brand.SQLSERVER else ""
        return f"merge into {self.target} t using {self.stage} s on ({same}){update}{insert}{end}"

    def _update_then_insert(self) -> list[str]:
        there = f"select 1 from {self.stage} s where {self._same_as_target('s')}"
        sets = ", ".join(
            f"{self.columns[n]} = (select s.{stage_column(n)} from {self.stage} s where"
            f" {self._same_as_target('s')})"
            for n in self._others()
        )
        update = [f"update {self.target} set {sets} where exists ({there})"] if sets else []
        same = " and ".join(
            f"t.{self.columns[n]} = {self.stage}.{stage_column(n)}" for n in self.key
        )
        return [
            *update,
            self._insert(f" where not exists (select 1 from {self.target} t where {same})"),
        ]
