"""Spark's own JDBC reader and writer, for databases whose driver is given. Called by foreign.py and spark/build.py, in the driver."""

from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, TypeVar

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tidegate.connectors.jdbc.foreign import ForeignRead, ForeignSink, ForeignSource
from tidegate.connectors.jdbc.prepare import NotPrepared
from tidegate.connectors.jdbc.target import written
from tidegate.databases.errors import AccessDenied, DatabaseTrouble, DatabaseUnreachable, StatementRefused, TableMissing
from tidegate.databases.url import masked_by, shown_url
from tidegate.model.errors import TidegateError, UserError
from tidegate.model.types import ROW_KIND, RowKind, Table
from tidegate.plugin.arrow import table_of
from tidegate.plugin.contract import Offset, WriteTask
from tidegate.plugin.option import Values, as_text

T = TypeVar("T")
LINE_MAX = 1000
CAUSES_MAX = 20


class DriverMissing(UserError):
    """The class of a JDBC driver cannot be found."""

    condition = "jdbc-driver-missing"

    def __init__(self, driver: str, where: str, why: str) -> None:
        super().__init__(
            f'the JDBC driver {driver!r} for {where} is not there ({why}): name its jar in env {{ jars = "/path/driver.jar" }} (several are separated by ;), '
            "and check `driver` and `url`"
        )
        self.driver, self.where = driver, where


def found_table(values: Values, read: ForeignRead) -> Table:
    """The table as Spark sees it."""
    try:
        return table_of(_asked(values, lambda: _rows(values, read.relation, []).limit(0).toArrow().schema), read.path)
    except TypeError as error:
        raise UserError(f"{read.path} has a column that cannot travel through a pipeline: {error}; leave it out or cast it with `query`") from error


def low_high(values: Values, read: ForeignRead) -> tuple[int | None, int | None]:
    """The whole numbers around all values of the partition column."""
    where = f" where {read.filter}" if read.filter else ""
    text = f"(select min({read.column}) low_end, max({read.column}) high_end from {read.relation}{where}) tidegate_bounds"
    low, high = _asked(values, lambda: _rows(values, text, []).collect()[0])
    return _whole(low, ROUND_FLOOR), _whole(high, ROUND_CEILING)


def _whole(value: Any, rounding: str) -> int | None:
    if value is None:
        return None
    exact = Decimal(str(value))
    if not exact.is_finite():
        raise UserError(f"partition_column holds {value}, and cannot be cut: name another column, or leave it out")
    return int(exact.to_integral_value(rounding))


def frame(source: ForeignSource, spark: SparkSession, table: Table, start: Offset, end: Offset) -> DataFrame:
    """The rows of one table between two offsets: a task for each condition."""
    read, predicates = source.predicates(table, start, end, spark.sparkContext.defaultParallelism)
    rows = _asked(source.values, lambda: _rows(source.values, read.relation, predicates or ["1 = 0"], spark))
    return rows.select(*[f.col(_quoted(name)) for name in table.names()])


def save(sink: ForeignSink, df: DataFrame, table: Table, task: WriteTask) -> None:
    """Add the rows of one batch. The first write into a table does with it what the save modes say."""
    values, place = sink.values, sink.place(table)
    rows = _only_inserts(df) if table.kinds else df
    rows = rows.toDF(*[written(name, values) for name in rows.columns])
    mode, more = _prepared(values, place) if sink.begins(place, task) else ("append", {})
    properties = {**_properties(values), **more, "batchsize": str(values["batch_size"])}
    _asked(values, lambda: rows.write.mode(mode).jdbc(values["url"], place, properties=properties), only_sql=True)


def _prepared(values: Values, place: str) -> tuple[str, dict[str, str]]:
    """The mode of a first write: what is there is looked at as the save modes ask."""
    there = _is_there(values, place)
    if not there and values["schema_save_mode"] in ("ERROR_WHEN_SCHEMA_NOT_EXIST", "IGNORE"):
        raise TableMissing(shown_url(values["url"]), place)
    if there and values["schema_save_mode"] == "RECREATE_SCHEMA":
        return "overwrite", {}
    if there and values["data_save_mode"] == "DROP_DATA":
        return "overwrite", {"truncate": "true"}
    if there and values["data_save_mode"] == "ERROR_WHEN_DATA_EXISTS" and _asked(values, lambda: _rows(values, place, []).limit(1).count()):
        raise NotPrepared(f"there are rows in {place} (maybe of an earlier try of this batch), and data_save_mode is ERROR_WHEN_DATA_EXISTS")
    return "append", {}


def _is_there(values: Values, place: str) -> bool:
    try:
        _asked(values, lambda: _rows(values, place, []).columns)
    except StatementRefused:
        return False
    return True


def _rows(values: Values, relation: str, predicates: list[str], spark: SparkSession | None = None) -> DataFrame:
    reader = (spark or SparkSession.builder.getOrCreate()).read
    properties = {**_properties(values), "fetchsize": str(values.get("fetch_size") or 0), "preferTimestampNTZ": "true"}
    if predicates:
        return reader.jdbc(values["url"], relation, predicates=predicates, properties=properties)
    return reader.jdbc(values["url"], relation, properties=properties)


def _properties(values: Values) -> dict[str, str]:
    """What the driver is handed: the connection's properties, who we are, and its class."""
    given = {str(key): as_text(value) for key, value in (values["properties"] or {}).items() if value is not None}
    named = {"user": values["username"], "password": values["password"], "driver": values["driver"]}
    return given | {key: text for key, text in named.items() if text}


def _asked(values: Values, act: Callable[[], T], *, only_sql: bool = False) -> T:
    """Do something that asks the database; what Spark throws is one of ours, without a password. `only_sql`: what is not from the database is left to the
    engine, as rows on their way into it come from anywhere."""
    try:
        return act()
    except (PySparkException, Py4JJavaError) as error:
        chain = _causes(error)
        if only_sql and not any(state or name.startswith("java.sql.") for name, _, state in chain):
            raise
        raise _ours(values, chain or [("", str(error), "")]) from None


def _ours(values: Values, chain: list[tuple[str, str, str]]) -> TidegateError:
    where = shown_url(values["url"])
    line = masked_by(values["url"], values["password"], chain[-1][1].partition("\n")[0])[:LINE_MAX]
    text = " ".join(f"{name}: {told}" for name, told, _ in chain)
    if any(words in text for words in ("ClassNotFoundException", "No suitable driver", "could not open a JDBC connection")):
        return DriverMissing(values["driver"], where, line)
    state = next((state for _, _, state in reversed(chain) if state), "")
    if state.startswith("28"):
        return AccessDenied(where, line)
    if state.startswith("08"):
        return DatabaseUnreachable(where, line)
    if state.startswith(("42", "22")) or not any(name.startswith("java.sql.") for name, _, _ in chain):
        return StatementRefused(where, line, state)
    return DatabaseTrouble(where, line, state)


def _causes(error: PySparkException | Py4JJavaError) -> list[tuple[str, str, str]]:
    """The exceptions of the JVM from the outermost to the first cause: class, message, SQLSTATE."""
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    gateway = SparkSession.builder.getOrCreate().sparkContext._gateway
    found: list[tuple[str, str, str]] = []
    while java is not None and gateway is not None and len(found) < CAUSES_MAX:
        state = str(java.getSQLState() or "") if is_instance_of(gateway, java, "java.sql.SQLException") else ""
        found.append((java.getClass().getName(), str(java.getMessage() or java.getClass().getName()), state))
        java = java.getCause()
    return found


def _only_inserts(df: DataFrame) -> DataFrame:
    """Spark's writer can only add rows: one that takes something back must not become one that is added."""
    adds = f.col(ROW_KIND).isin(RowKind.INSERT.code, RowKind.UPDATE_AFTER.code)
    refused = f.raise_error(f.lit("a row that updates or deletes cannot be written to this database: put FilterRowKind before the sink"))
    return df.where(f.when(adds, f.lit(True)).otherwise(refused.cast("boolean"))).drop(ROW_KIND)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
