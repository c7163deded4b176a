"""Writes names, text constants and types in the syntax of Spark SQL.

Called by connectors that build expressions. Makes text only; does not import pyspark.
"""

from tidegate.model.types import DataType, TypeName

_SPARK = {
    TypeName.BYTES: "BINARY",
    TypeName.TIMESTAMP: "TIMESTAMP_NTZ",
    TypeName.TIMESTAMP_TZ: "TIMESTAMP",
    TypeName.NULL: "VOID",
    TypeName.BINARY_VECTOR: "BINARY",
    TypeName.FLOAT_VECTOR: "ARRAY<FLOAT>",
    TypeName.FLOAT16_VECTOR: "ARRAY<FLOAT>",
    TypeName.BFLOAT16_VECTOR: "ARRAY<FLOAT>",
    TypeName.SPARSE_FLOAT_VECTOR: "MAP<INT, FLOAT>",
}


def sql_type(kind: DataType) -> str:
    match kind.name:
        case TypeName.DECIMAL:
            return f"DECIMAL({kind.precision},{kind.scale})"
        case TypeName.ARRAY:
            return f"ARRAY<{sql_type(kind.children[0])}>"
        case TypeName.MAP:
            return f"MAP<{sql_type(kind.children[0])}, {sql_type(kind.children[1])}>"
        case TypeName.ROW:
            return (
                "STRUCT<"
                + ", ".join(f"{sql_name(c.name)}: {sql_type(c.type)}" for c in kind.columns)
                + ">"
            )
        case _:
            return _SPARK.get(kind.name, kind.name.value.upper())


def sql_name(text: str) -> str:
    """Quote a name, whatever characters it contains."""
    return "`" + text.replace("`", "``") + "`"


def sql_text(value: str) -> str:
    """Quote a text constant; Spark's parser reads backslashes in it as escapes."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
