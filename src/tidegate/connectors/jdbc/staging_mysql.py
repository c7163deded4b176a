"""Staging in MariaDB and MySQL with LOAD DATA LOCAL, or inserts if the server forbids LOCAL.

The loaded text distinguishes null (\\N) from the empty text.
"""

import os
import tempfile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.jdbc.staging import StageLoader, stage_type
from tidegate.databases.catalog import TableName
from tidegate.databases.dialect import Dialect
from tidegate.databases.errors import StatementRefused
from tidegate.databases.mysql.session import MySqlSession
from tidegate.databases.session import Session
from tidegate.databases.targets.mysql_rules import MySqlRules, exact_collation
from tidegate.databases.url import Address
from tidegate.model.types import DataType

# LOCAL is disabled by the server or the client, or not supported.
_NO_LOCAL = ("1148", "3948", "4166", "2068")
_ROWS_PER_INSERT = 1000


class MySqlLoader(StageLoader):
    """Loads rows through a connection and a reusable temporary file."""

    def __init__(self, address: Address, dialect: Dialect) -> None:
        self._dialect = dialect
        self._rules = MySqlRules()
        self._session = MySqlSession(address, local_infile=True)
        self._rules.prepare_session(self._session)
        self._local = True
        # Unnamed, so that nothing remains of it, however this process ends.
        self._file = tempfile.TemporaryFile(  # noqa: SIM115  # closed with the loader
            dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        )

    @property
    def session(self) -> Session:
        return self._session

    def create(self, name: TableName, types: list[DataType]) -> None:
        """Create a table with the row order as primary key."""
        columns = ", ".join(
            f"c{number} {stage_type(kind, self._dialect)}" for number, kind in enumerate(types)
        )
        columns = columns.replace(
            "collate utf8mb4_bin", f"collate {exact_collation(self._session)}"
        )
        self._session.execute(
            f"create table {self._dialect.qualified(name)} (seq bigint primary key, kind tinyint,"
            f" {columns}) engine = InnoDB"
        )

    def load(self, name: TableName, batch: pa.RecordBatch) -> None:
        """Load with LOAD DATA LOCAL, else with inserts."""
        if self._local:
            try:
                self._load_file(name, batch)
                return
            except StatementRefused as error:
                if error.code not in _NO_LOCAL:
                    raise
                self._local = False
        self._insert(name, batch)

    def _load_file(self, name: TableName, batch: pa.RecordBatch) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._file.write(encode_rows(batch))
        self._file.flush()
        self._file.seek(0)
        binary = [pa.types.is_binary(field.type) for field in batch.schema]
        fields = ", ".join(
            f"@b{i}" if binary[i] else field.name for i, field in enumerate(batch.schema)
        )
        sets = ", ".join(
            f"{field.name} = unhex(@b{i})" for i, field in enumerate(batch.schema) if binary[i]
        )
        self._session.execute(
            f"load data local infile '/dev/fd/{self._file.fileno()}' into table"
            f" {self._dialect.qualified(name)} character set utf8mb4 fields terminated by '\\t'"
            f" escaped by '\\\\' lines terminated by '\\n' ({fields})"
            + (f" set {sets}" if sets else "")
        )
        self._check_unchanged()

    def _insert(self, name: TableName, batch: pa.RecordBatch) -> None:
        names, marks = ", ".join(batch.schema.names), ", ".join(["%s"] * batch.num_columns)
        texts = [
            _without_zone(column).cast(pa.string()) if _needs_text(column.type) else column
            for column in batch.columns
        ]
        rows = list(zip(*(column.to_pylist() for column in texts), strict=True))
        for first in range(0, len(rows), _ROWS_PER_INSERT):
            self._session.execute_many(
                f"insert into {self._dialect.qualified(name)} ({names}) values ({marks})",
                rows[first : first + _ROWS_PER_INSERT],
            )

    def _check_unchanged(self) -> None:
        """Fail if LOAD DATA LOCAL changed values; it only warns, in every SQL mode."""
        if why := self._rules.altered_values(self._session):
            raise StatementRefused(str(self._session.address), why)

    def drop(self, name: TableName) -> None:
        self._session.execute(f"drop table if exists {self._dialect.qualified(name)}")

    def close(self) -> None:
        """The connection and the file."""
        self._session.close()
        self._file.close()


def encode_rows(batch: pa.RecordBatch) -> bytes:
    """Encode rows for LOAD DATA: tab-separated, null as \\N, special characters escaped."""
    if not batch.num_rows:
        return b""
    lines: Any = pc.binary_join_element_wise(
        *[_text_column(column) for column in batch.columns], pa.scalar("\t")
    )
    whole: Any = pc.binary_join(
        pa.ListArray.from_arrays(pa.array([0, batch.num_rows], pa.int32()), lines), "\n"
    )
    data: bytes = whole[0].as_buffer().to_pybytes()
    return data + b"\n"


def _text_column(column: Any) -> Any:
    kind = column.type
    if pa.types.is_binary(kind):
        texts = pa.array(
            [None if value is None else value.hex() for value in column.to_pylist()], pa.string()
        )
    elif pa.types.is_boolean(kind):
        texts = column.cast(pa.int8()).cast(pa.string())
    elif pa.types.is_timestamp(kind):
        texts = _without_zone(column).cast(pa.string())
    elif pa.types.is_string(kind):
        texts = column
        for raw, written in (
            ("\\", "\\\\"),
            ("\t", "\\t"),
            ("\n", "\\n"),
            ("\r", "\\r"),
            ("\0", "\\0"),
        ):
            texts = pc.replace_substring(texts, raw, written)
    else:
        texts = column.cast(pa.string())
    return texts.fill_null("\\N")


def _without_zone(column: Any) -> Any:
    """Timestamps in UTC, without a time zone."""
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column


def _needs_text(kind: Any) -> bool:
    """Whether pymysql would write the type differently than we stage it."""
    return bool(
        pa.types.is_timestamp(kind)
        or pa.types.is_time(kind)
        or pa.types.is_date(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_floating(kind)
    )
