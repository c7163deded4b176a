"""Spark's JDBC reader and writer, for databases with a given JDBC driver.

Called by jvm_connector.py and spark/build.py, in the driver.
"""

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, TypeVar
from uuid import uuid4

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructType

from tidegate.connectors.jdbc.jvm_committer import FilledStage
from tidegate.connectors.jdbc.jvm_connector import JvmRead, JvmSink, JvmSource
from tidegate.connectors.jdbc.jvm_errors import DriverMissing, translate_jvm_error
from tidegate.connectors.jdbc.jvm_rows import SHORT_TEXTS, copy_rows
from tidegate.connectors.jdbc.jvm_sql import KIND, SEQ, Brand, create_stage, stage_column
from tidegate.connectors.jdbc.jvm_types import check_jvm_types
from tidegate.connectors.jdbc.save_modes import TableNotPrepared
from tidegate.connectors.jdbc.stage_names import StageName, lineage_digest, sink_digest
from tidegate.connectors.jdbc.target import with_name_case
from tidegate.databases.errors import StatementRefused, TableMissing
from tidegate.databases.url import url_without_secrets
from tidegate.failpoint import failpoint
from tidegate.model.errors import UserError
from tidegate.model.types import ROW_KIND, RowKind, Table
from tidegate.plugin.arrow import table_of
from tidegate.plugin.contract import Offset, WriteTask
from tidegate.plugin.option import Values, as_text

T = TypeVar("T")
CAUSES_MAX = 20
KEY_TEXT_MAX = 255


def read_table_schema(values: Values, read: JvmRead) -> Table:
    """Read a table's columns with the types that Spark derives."""
    try:
        return table_of(
            _translating(
                values, lambda: _rows(values, read.relation, []).limit(0).toArrow().schema
            ),
            read.path,
        )
    except TypeError as error:
        raise UserError(
            f"{read.path} has a column of an unsupported type: {error}; leave it out or cast it"
            " with `query`"
        ) from error


def column_bounds(values: Values, read: JvmRead) -> tuple[int | None, int | None]:
    """Integer bounds of all values of the partition column."""
    where = f" where {read.filter}" if read.filter else ""
    text = (
        f"(select min({read.column}) low_end, max({read.column}) high_end from"
        f" {read.relation}{where}) tidegate_bounds"
    )
    low, high = _translating(values, lambda: _rows(values, text, []).collect()[0])
    return _whole(low, ROUND_FLOOR), _whole(high, ROUND_CEILING)


def _whole(value: Any, rounding: str) -> int | None:
    if value is None:
        return None
    exact = Decimal(str(value))
    if not exact.is_finite():
        raise UserError(
            f"partition_column has the value {value}, which cannot be split: name another column,"
            " or remove the option"
        )
    return int(exact.to_integral_value(rounding))


def frame(
    source: JvmSource, spark: SparkSession, table: Table, start: Offset, end: Offset
) -> DataFrame:
    """Read the rows of one table between two offsets, with a task for each condition."""
    read, predicates = source.predicates(table, start, end, spark.sparkContext.defaultParallelism)
    rows = _translating(
        source.values, lambda: _rows(source.values, read.relation, predicates or ["1 = 0"], spark)
    )
    return rows.select(*[f.col(_quoted(name)) for name in table.names()])


def save(sink: JvmSink, df: DataFrame, table: Table, task: WriteTask) -> None:
    """Stage the rows of one batch for the committer, or append them directly.

    The first write into a table applies the save modes.
    """
    if not sink.direct:
        _stage(sink, df, table, task)
        return
    values, target = sink.values, sink.target_name(table)
    rows = _only_inserts(df) if table.kinds else df
    rows = rows.toDF(*[with_name_case(name, values) for name in rows.columns])
    mode, more = (
        _write_mode(values, target) if sink.is_first_write(target, task) else ("append", {})
    )
    properties = {**_properties(values), **more, "batchsize": str(values["batch_size"])}
    _translating(
        values,
        lambda: rows.write.mode(mode).jdbc(values["url"], target, properties=properties),
        only_sql=True,
    )


def _stage(sink: JvmSink, df: DataFrame, table: Table, task: WriteTask) -> None:
    """Create a staging table of this attempt and let Spark fill it."""
    values, names = sink.values, table.names()
    target = "" if values["query"] else sink.target_name(table)
    digests = sink_digest(sink.context), lineage_digest(task.lineage)
    stage = str(StageName(*digests, task.generation, task.checkpoint, task.token[:8], task.subtask))
    key = sink.key(table) if target else ()
    sink.check_input(target, table.path)
    with closing(connect(values)) as connection:
        columns: tuple[str, ...] = ()
        large: frozenset[int] = frozenset()
        if target:
            # Only the frame's schema is used: its first action reports the observed metrics.
            _prepare(sink, connection, StructType([df.schema[name] for name in names]), target, key)
            columns = connection.columns(target, [with_name_case(name, values) for name in names])
            if not values["allow_lossy_types"]:
                check_jvm_types(table, target, connection.column_types(target, columns))
            brand = Brand.of(values["url"])
            if brand.stages_large_texts:
                large = connection.short_texts(target, columns) - frozenset(key)
            statement = create_stage(brand, stage, target, columns, large)
            if statement:
                connection.execute(statement)
                _check_types(connection, target, columns, stage, large)
        connection.commit()
        folded = [
            connection.fold_case(name)
            for name in (SEQ, KIND, *(stage_column(n) for n in range(len(names))))
        ]
    kind = f.col(ROW_KIND).cast("int") if table.kinds else f.lit(RowKind.INSERT.code)
    rows = df.select(
        f.monotonically_increasing_id(), kind, *[f.col(_quoted(name)) for name in names]
    ).toDF(*folded)
    properties = {**_properties(values), "batchsize": str(values["batch_size"])}
    _translating(
        values,
        lambda: rows.write.mode("append").jdbc(values["url"], stage, properties=properties),
        only_sql=True,
    )
    part = FilledStage(
        target=target,
        stage=stage,
        columns=columns,
        names=tuple(names),
        key=key,
        kinds=table.kinds,
        large=large,
    )
    sink.staging.filled[task.checkpoint, task.subtask] = part


def _check_types(
    connection: "JvmConnection",
    target: str,
    columns: tuple[str, ...],
    stage: str,
    large: frozenset[int],
) -> None:
    """Check that staged columns have the target's types, so that they cannot change values."""
    staged = connection.type_numbers(stage, [stage_column(n) for n in range(len(columns))])
    for number, (wanted, made) in enumerate(
        zip(connection.type_numbers(target, columns), staged, strict=True)
    ):
        if number not in large and wanted != made:
            raise UserError(
                f"the column {columns[number]} of {target} cannot be staged: its type {wanted}"
                f" becomes {made} (numbers of java.sql.Types)"
            )


def _prepare(
    sink: JvmSink,
    connection: "JvmConnection",
    shape: StructType,
    target: str,
    key: tuple[int, ...],
) -> None:
    """Apply the save modes, once per lineage.

    May be repeated until the first commit: the table has none of our rows before it.
    """
    values, staging = sink.values, sink.staging
    if target in staging.prepared_now or (
        target in staging.prepared
        and not (staging.record_recreated and not connection.table_exists(target))
    ):
        return
    exists = connection.table_exists(target)
    if not exists and values["schema_save_mode"] in ("ERROR_WHEN_SCHEMA_NOT_EXIST", "IGNORE"):
        raise TableMissing(url_without_secrets(values["url"]), target)
    failpoint("foreignsink.prepare.before")
    if exists and values["schema_save_mode"] == "RECREATE_SCHEMA":
        connection.execute(f"drop table {target}")
        exists = False
    if exists and values["data_save_mode"] == "DROP_DATA":
        connection.execute(f"delete from {target}")
    if (
        exists
        and values["data_save_mode"] == "ERROR_WHEN_DATA_EXISTS"
        and connection.rows(f"select count(*) from {target}")[0][0] != "0"
    ):
        raise TableNotPrepared(
            f"{target} has rows already, and data_save_mode is ERROR_WHEN_DATA_EXISTS"
        )
    connection.commit()
    if not exists:
        _create(values, connection, shape, target, key)
    if values["data_save_mode"] == "CUSTOM_PROCESSING":
        connection.execute(values["custom_sql"])
        connection.commit()
    failpoint("foreignsink.prepare.after")
    staging.prepared_now.add(target)


def _create(
    values: Values,
    connection: "JvmConnection",
    shape: StructType,
    target: str,
    key: tuple[int, ...],
) -> None:
    """Let Spark create a table; texts of the key are short enough to be indexed."""
    names = [with_name_case(name, values) for name in shape.names]
    texts = [_quoted(names[n]) for n in key if shape[n].dataType == StringType()]
    properties = dict(_properties(values))
    if texts:
        properties["createTableColumnTypes"] = ", ".join(
            f"{name} VARCHAR({KEY_TEXT_MAX})" for name in texts
        )
    empty = SparkSession.builder.getOrCreate().createDataFrame([], shape).toDF(*names)
    _translating(
        values,
        lambda: empty.write.mode("append").jdbc(values["url"], target, properties=properties),
        only_sql=True,
    )
    if key and values["create_index"]:
        own = connection.columns(target, [names[n] for n in key])
        connection.execute(
            f"create unique index tidegate_k_{uuid4().hex[:12]} on {target} ({', '.join(own)})"
        )
        connection.commit()


def is_spark_running() -> bool:
    """Whether this process has a Spark context."""
    return SparkContext._active_spark_context is not None


def connect(values: Values) -> "JvmConnection":
    """Open a connection with the JDBC driver of the job's options."""
    return _translating(values, lambda: JvmConnection(values, _open_connection(values)))


def _open_connection(values: Values) -> Any:
    jvm: Any = SparkSession.builder.getOrCreate().sparkContext._jvm
    given = jvm.java.util.Properties()
    for name, text in _properties(values).items():
        if name != "driver":
            given.setProperty(name, text)
    # DriverManager does not see classes of the job's jars.
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    connection = loader.loadClass(values["driver"]).newInstance().connect(values["url"], given)
    if connection is None:
        raise DriverMissing(
            values["driver"], url_without_secrets(values["url"]), "it does not accept this URL"
        )
    connection.setAutoCommit(False)
    return connection


class JvmConnection:
    """A JDBC connection without autocommit, whose errors are ours."""

    def __init__(self, values: Values, java: Any) -> None:
        self._values = values
        self._java = java
        about = java.getMetaData()
        self._quote = str(about.getIdentifierQuoteString() or "").strip()
        self._upper = bool(about.storesUpperCaseIdentifiers())
        self._lower = bool(about.storesLowerCaseIdentifiers())

    def execute(self, sql: str, *given: Any) -> int:
        """Run a statement and return the number of changed rows."""
        return _translating(
            self._values,
            lambda: int(self._run(sql, given, lambda statement: statement.executeUpdate())),
        )

    def rows(self, sql: str, *given: Any) -> list[tuple[str | None, ...]]:
        """Run a query and return its rows as texts."""

        def read(statement: Any) -> list[tuple[str | None, ...]]:
            found, made = statement.executeQuery(), []
            width = found.getMetaData().getColumnCount()
            while found.next():
                made.append(tuple(found.getString(number) for number in range(1, width + 1)))
            return made

        return _translating(self._values, lambda: self._run(sql, given, read))

    def _run(self, sql: str, given: Sequence[Any], act: Callable[[Any], T]) -> T:
        with closing(self._java.prepareStatement(sql)) as statement:
            for number, value in enumerate(given, 1):
                if isinstance(value, int):
                    statement.setLong(number, value)
                else:
                    statement.setString(number, value)
            return act(statement)

    def tables(self, prefix: str) -> list[str]:
        """Names of tables with a prefix, in lower case."""

        def read() -> list[str]:
            with closing(
                self._java.getMetaData().getTables(
                    self._java.getCatalog(), None, f"{self.fold_case(prefix)}%", None
                )
            ) as found:
                names = []
                while found.next():
                    names.append(str(found.getString("TABLE_NAME")).lower())
            return sorted({name for name in names if name.startswith(prefix)})

        return _translating(self._values, read)

    def table_exists(self, target: str) -> bool:
        """Whether a table can be read."""
        try:
            self.rows(f"select count(*) from {target} where 1 = 0")
        except StatementRefused:
            self.rollback()
            return False
        return True

    def columns(self, target: str, wanted: Sequence[str]) -> tuple[str, ...]:
        """Find columns by name; returns the database's spelling, quoted."""

        def read(statement: Any) -> list[str]:
            about = statement.executeQuery().getMetaData()
            return [
                str(about.getColumnName(number)) for number in range(1, about.getColumnCount() + 1)
            ]

        own = _translating(
            self._values, lambda: self._run(f"select * from {target} where 1 = 0", (), read)
        )
        known = {name.lower(): name for name in own} | {name: name for name in own}
        lacking = [name for name in wanted if name not in known and name.lower() not in known]
        if lacking:
            raise UserError(
                f"the table {target} has no column {', '.join(lacking)}: there are {', '.join(own)}"
            )
        return tuple(self.quote(known.get(name) or known[name.lower()]) for name in wanted)

    def short_texts(self, target: str, columns: Sequence[str]) -> frozenset[int]:
        """Indexes of the columns that are texts, except large objects."""
        return frozenset(
            number
            for number, kind in enumerate(self.type_numbers(target, columns))
            if kind in SHORT_TEXTS
        )

    def type_numbers(self, target: str, columns: Sequence[str]) -> list[int]:
        """The types of columns, as numbers of java.sql.Types."""
        return [kind for kind, *_ in self.column_types(target, columns)]

    def column_types(self, target: str, columns: Sequence[str]) -> list[tuple[int, int, int]]:
        """The types of columns: number of java.sql.Types, precision, scale."""

        def read(statement: Any) -> list[tuple[int, int, int]]:
            about = statement.executeQuery().getMetaData()
            return [
                (int(about.getColumnType(n)), int(about.getPrecision(n)), int(about.getScale(n)))
                for n in range(1, len(columns) + 1)
            ]

        return _translating(
            self._values,
            lambda: self._run(f"select {', '.join(columns)} from {target} where 1 = 0", (), read),
        )

    def quote(self, name: str) -> str:
        """Quote a name, if the database supports that."""
        return (
            f"{self._quote}{name.replace(self._quote, self._quote * 2)}{self._quote}"
            if self._quote
            else name
        )

    def fold_case(self, name: str) -> str:
        """Convert to the case in which the database stores unquoted names."""
        return name.upper() if self._upper else name.lower() if self._lower else name

    def run_for_rows(self, statement: str, query: str, rows_max: int) -> None:
        """Run a statement for every row of a query, with its values as parameters.

        The values stay in the JVM.
        """
        _translating(
            self._values,
            lambda: self._run(
                query,
                (),
                lambda rows: self._run(
                    statement, (), lambda put: copy_rows(rows.executeQuery(), put, rows_max)
                ),
            ),
        )

    def commit(self) -> None:
        """Commit the transaction and begin a new one."""
        _translating(self._values, self._java.commit)

    def rollback(self) -> None:
        """Roll the transaction back and begin a new one."""
        _translating(self._values, self._java.rollback)

    def close(self) -> None:
        """Close the connection and roll back uncommitted changes."""
        with suppress(PySparkException, Py4JJavaError):
            self._java.rollback()
        with suppress(PySparkException, Py4JJavaError):
            self._java.close()


def _write_mode(values: Values, target: str) -> tuple[str, dict[str, str]]:
    """The mode of the first write, from the save modes and the existing table."""
    exists = _table_exists(values, target)
    if not exists and values["schema_save_mode"] in ("ERROR_WHEN_SCHEMA_NOT_EXIST", "IGNORE"):
        raise TableMissing(url_without_secrets(values["url"]), target)
    if exists and values["schema_save_mode"] == "RECREATE_SCHEMA":
        return "overwrite", {}
    if exists and values["data_save_mode"] == "DROP_DATA":
        return "overwrite", {"truncate": "true"}
    if (
        exists
        and values["data_save_mode"] == "ERROR_WHEN_DATA_EXISTS"
        and _translating(values, lambda: _rows(values, target, []).limit(1).count())
    ):
        raise TableNotPrepared(
            f"{target} has rows already (possibly of an earlier attempt of this batch), and"
            " data_save_mode is ERROR_WHEN_DATA_EXISTS"
        )
    return "append", {}


def _table_exists(values: Values, target: str) -> bool:
    try:
        _translating(values, lambda: _rows(values, target, []).columns)
    except StatementRefused:
        return False
    return True


def _rows(
    values: Values, relation: str, predicates: list[str], spark: SparkSession | None = None
) -> DataFrame:
    reader = (spark or SparkSession.builder.getOrCreate()).read
    properties = {
        **_properties(values),
        "fetchsize": str(values.get("fetch_size") or 0),
        "preferTimestampNTZ": "true",
    }
    if predicates:
        return reader.jdbc(values["url"], relation, predicates=predicates, properties=properties)
    return reader.jdbc(values["url"], relation, properties=properties)


def _properties(values: Values) -> dict[str, str]:
    """Properties for the JDBC driver: those of the options, credentials and its class."""
    given = {
        str(key): as_text(value)
        for key, value in (values["properties"] or {}).items()
        if value is not None
    }
    named = {"user": values["username"], "password": values["password"], "driver": values["driver"]}
    return given | {key: text for key, text in named.items() if text}


def _translating(values: Values, act: Callable[[], T], *, only_sql: bool = False) -> T:
    """Call Spark and translate its errors to ours, without passwords.

    `only_sql`: errors that are not from the database are left to the engine, since rows that are
    written to it can come from anywhere.
    """
    try:
        return act()
    except (PySparkException, Py4JJavaError) as error:
        chain = _causes(error)
        if only_sql and not any(state or name.startswith("java.sql.") for name, _, state in chain):
            raise
        raise translate_jvm_error(values, chain or [("", str(error), "")]) from None


def _causes(error: PySparkException | Py4JJavaError) -> list[tuple[str, str, str]]:
    """The chain of JVM exceptions up to the root cause: class, message, SQLSTATE."""
    java = (
        error.java_exception
        if isinstance(error, Py4JJavaError)
        else getattr(error, "_origin", None)
    )
    gateway = SparkSession.builder.getOrCreate().sparkContext._gateway
    found: list[tuple[str, str, str]] = []
    while java is not None and gateway is not None and len(found) < CAUSES_MAX:
        state = (
            str(java.getSQLState() or "")
            if is_instance_of(gateway, java, "java.sql.SQLException")
            else ""
        )
        found.append(
            (java.getClass().getName(), str(java.getMessage() or java.getClass().getName()), state)
        )
        java = java.getCause()
    return found


def _only_inserts(df: DataFrame) -> DataFrame:
    """Fail for rows that update or delete, since Spark's writer can only append rows."""
    adds = f.col(ROW_KIND).isin(RowKind.INSERT.code, RowKind.UPDATE_AFTER.code)
    refused = f.raise_error(
        f.lit(
            "a row that updates or deletes cannot be written to this database: put FilterRowKind"
            " before the sink"
        )
    )
    return df.where(f.when(adds, f.lit(True)).otherwise(refused.cast("boolean"))).drop(ROW_KIND)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
