"""Names, texts and types as Spark SQL writes them.

Called by connectors that build expressions; text only, no pyspark.
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
    """A name, whatever characters it has."""
    return "`" + text.replace("`", "``") + "`"


def sql_text(value: str) -> str:
    """A text constant; Spark's parser reads backslashes in it as escapes."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
