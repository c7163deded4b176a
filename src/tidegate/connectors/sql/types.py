"""Types of SQL expressions, and the common type of two of them.

Called by the translation; must import neither Arrow nor Spark.
"""

from dataclasses import dataclass

from tidegate.connectors.sql.errors import SqlError
from tidegate.model.problem import closest_match
from tidegate.model.types import DataType, TypeName
from tidegate.plugin import spark_sql

name, text, spark_type = spark_sql.sql_name, spark_sql.sql_text, spark_sql.sql_type

STRING = DataType(TypeName.STRING)
BOOLEAN = DataType(TypeName.BOOLEAN)
TINYINT = DataType(TypeName.TINYINT)
SMALLINT = DataType(TypeName.SMALLINT)
INT = DataType(TypeName.INT)
BIGINT = DataType(TypeName.BIGINT)
FLOAT = DataType(TypeName.FLOAT)
DOUBLE = DataType(TypeName.DOUBLE)
BYTES = DataType(TypeName.BYTES)
DATE = DataType(TypeName.DATE)
TIME = DataType(TypeName.TIME)
TIMESTAMP = DataType(TypeName.TIMESTAMP)
TIMESTAMP_TZ = DataType(TypeName.TIMESTAMP_TZ)
NULL = DataType(TypeName.NULL)
DECIMAL = DataType(TypeName.DECIMAL, precision=38, scale=18)

SMALL = frozenset({TypeName.TINYINT, TypeName.SMALLINT, TypeName.INT})
WHOLE = SMALL | {TypeName.BIGINT}
FLOATING = frozenset({TypeName.FLOAT, TypeName.DOUBLE})
NUMBERS = WHOLE | FLOATING | {TypeName.DECIMAL}
_ORDER = [
    TypeName.TINYINT,
    TypeName.SMALLINT,
    TypeName.INT,
    TypeName.BIGINT,
    TypeName.FLOAT,
    TypeName.DOUBLE,
]

_NAMES = {
    "VARCHAR": STRING,
    "STRING": STRING,
    "TEXT": STRING,
    "CHAR": STRING,
    "INT": INT,
    "INTEGER": INT,
    "BIGINT": BIGINT,
    "LONG": BIGINT,
    "BYTE": TINYINT,
    "TINYINT": TINYINT,
    "SMALLINT": SMALLINT,
    "SHORT": SMALLINT,
    "BYTES": BYTES,
    "BINARY": BYTES,
    "DOUBLE": DOUBLE,
    "FLOAT": FLOAT,
    "TIMESTAMP": TIMESTAMP,
    "DATETIME": TIMESTAMP,
    "TIMESTAMP_TZ": TIMESTAMP_TZ,
    "TIMESTAMPTZ": TIMESTAMP_TZ,
    "DATE": DATE,
    "TIME": TIME,
    "BOOLEAN": BOOLEAN,
}


@dataclass(frozen=True, slots=True)
class Typed:
    """A piece of Spark SQL and its type; None: only Spark knows it.

    `literal` is the value if it is a constant of the query.
    """

    sql: str
    type: DataType | None
    literal: str | int | float | None = None

    def is_a(self, *types: DataType) -> bool:
        """Whether the type is known and one of these types."""
        return self.type in types

    def among(self, names: frozenset[TypeName]) -> bool:
        """Whether the type is known and has one of these names."""
        return self.type is not None and self.type.name in names


def type_named(word: str, sizes: list[int]) -> DataType:
    """The type of a CAST."""
    upper = word.upper()
    if upper in ("DECIMAL", "NUMERIC"):
        precision, scale = (*sizes, 0)[:2] if sizes else (DECIMAL.precision, DECIMAL.scale)
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise SqlError(
                f"DECIMAL({precision},{scale}): precision is 1 to 38 and scale at most the"
                " precision"
            )
        return DataType(TypeName.DECIMAL, precision=precision, scale=scale)
    if upper not in _NAMES:
        raise SqlError(
            f"CAST does not support the type {word}",
            suggestion=closest_match(word, [*_NAMES, "DECIMAL"]),
        )
    return _NAMES[upper]


def common_type(left: DataType | None, right: DataType | None) -> DataType | None:
    """The type of a CASE with these two branches; None: only Spark knows it."""
    if left is None or right is None:
        return None
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if left.name not in NUMBERS or right.name not in NUMBERS:
        return None
    if TypeName.DECIMAL in (left.name, right.name):
        return wider_decimal(left, right)
    return max(left, right, key=lambda t: _ORDER.index(t.name))


def wider_decimal(left: DataType, right: DataType) -> DataType:
    """The common decimal type: the larger precision and the larger scale of both."""
    return DataType(
        TypeName.DECIMAL,
        precision=max(left.precision, right.precision),
        scale=max(left.scale, right.scale),
    )
