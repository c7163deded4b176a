"""Maps Tidegate's types to Arrow types and back, and conforms batches to a table's schema.

Called in drivers and tasks only: it imports pyarrow.
"""

from typing import Any

import pyarrow as pa

from tidegate.model.types import ROW_KIND, Column, DataType, Table, TypeName

_SIMPLE: dict[TypeName, Any] = {
    TypeName.STRING: pa.string(),
    TypeName.BOOLEAN: pa.bool_(),
    TypeName.TINYINT: pa.int8(),
    TypeName.SMALLINT: pa.int16(),
    TypeName.INT: pa.int32(),
    TypeName.BIGINT: pa.int64(),
    TypeName.FLOAT: pa.float32(),
    TypeName.DOUBLE: pa.float64(),
    TypeName.NULL: pa.null(),
    TypeName.BYTES: pa.binary(),
    TypeName.DATE: pa.date32(),
    TypeName.TIME: pa.time64("ns"),  # the only unit that Spark accepts
    TypeName.TIMESTAMP: pa.timestamp("us"),
    TypeName.TIMESTAMP_TZ: pa.timestamp("us", tz="UTC"),
    TypeName.BINARY_VECTOR: pa.binary(),
    TypeName.FLOAT_VECTOR: pa.list_(pa.float32()),
    TypeName.FLOAT16_VECTOR: pa.list_(pa.float32()),
    TypeName.BFLOAT16_VECTOR: pa.list_(pa.float32()),
    TypeName.SPARSE_FLOAT_VECTOR: pa.map_(pa.int32(), pa.float32()),
}
_NAMES: dict[Any, TypeName] = {arrow: name for name, arrow in reversed(_SIMPLE.items())}


def arrow_type(kind: DataType) -> Any:
    """The Arrow type of a Tidegate type."""
    match kind.name:
        case TypeName.DECIMAL:
            return pa.decimal128(kind.precision, kind.scale)
        case TypeName.ARRAY:
            return pa.list_(pa.field("element", arrow_type(kind.children[0])))
        case TypeName.MAP:
            return pa.map_(arrow_type(kind.children[0]), arrow_type(kind.children[1]))
        case TypeName.ROW:
            return pa.struct([pa.field(c.name, arrow_type(c.type)) for c in kind.columns])
        case _:
            return _SIMPLE[kind.name]


def table_schema(table: Table) -> pa.Schema:
    """The schema of every batch of a table: all columns nullable, ROW_KIND last if `kinds`."""
    fields = [pa.field(c.name, arrow_type(c.type)) for c in table.columns]
    return pa.schema([*fields, pa.field(ROW_KIND, pa.int8())] if table.kinds else fields)


def data_type(arrow: Any) -> DataType:
    """The Tidegate type of an Arrow type of a file or of a Spark batch.

    A type without an exact counterpart becomes the nearest wider type.
    """
    if arrow in _NAMES:
        return DataType(_NAMES[arrow])
    if pa.types.is_decimal(arrow):
        return DataType(TypeName.DECIMAL, precision=arrow.precision, scale=arrow.scale)
    if (
        pa.types.is_list(arrow)
        or pa.types.is_large_list(arrow)
        or pa.types.is_fixed_size_list(arrow)
    ):
        return DataType(TypeName.ARRAY, children=(data_type(arrow.value_type),))
    if pa.types.is_map(arrow):
        return DataType(
            TypeName.MAP, children=(data_type(arrow.key_type), data_type(arrow.item_type))
        )
    if pa.types.is_struct(arrow):
        return DataType(
            TypeName.ROW, columns=tuple(Column(name=f.name, type=data_type(f.type)) for f in arrow)
        )
    return DataType(_nearest(arrow))


def _nearest(arrow: Any) -> TypeName:
    is_ = pa.types
    for test, name in (
        (is_.is_dictionary, TypeName.STRING),
        (is_.is_large_string, TypeName.STRING),
        (is_.is_string_view, TypeName.STRING),
        (is_.is_binary, TypeName.BYTES),
        (is_.is_large_binary, TypeName.BYTES),
        (is_.is_fixed_size_binary, TypeName.BYTES),
        (is_.is_uint8, TypeName.SMALLINT),
        (is_.is_uint16, TypeName.INT),
        (is_.is_unsigned_integer, TypeName.BIGINT),
        (is_.is_float16, TypeName.FLOAT),
        (is_.is_date, TypeName.DATE),
        (is_.is_time, TypeName.TIME),
    ):
        if test(arrow):
            return name
    if is_.is_timestamp(arrow):
        return TypeName.TIMESTAMP if arrow.tz is None else TypeName.TIMESTAMP_TZ
    raise TypeError(f"Arrow type {arrow} has no counterpart")


def table_of(schema: pa.Schema, path: str, *, like: Table | None = None) -> Table:
    """The table of an Arrow schema; keeps the keys of `like` whose columns still exist."""
    kinds = ROW_KIND in schema.names
    before = {c.name: c for c in like.columns} if like else {}
    columns = tuple(
        _column(f.name, data_type(f.type), before.get(f.name)) for f in schema if f.name != ROW_KIND
    )
    names = {c.name for c in columns}
    if like is None:
        return Table(path=path, columns=columns, kinds=kinds)
    key = like.primary_key if set(like.primary_key) <= names else ()
    unique = like.unique_key if set(like.unique_key) <= names else ()
    return Table(
        path=path,
        columns=columns,
        primary_key=key,
        unique_key=unique,
        comment=like.comment,
        kinds=kinds,
    )


def _column(name: str, kind: DataType, before: Column | None) -> Column:
    """Keep the other attributes of a column if its name and type are unchanged."""
    return before if before is not None and before.type == kind else Column(name=name, type=kind)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a batch to exactly this schema: order, names and types.

    Columns are matched by name; a missing column is an error that names it.
    """
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            raise KeyError(
                f"column {field.name!r} is missing: there are {', '.join(batch.schema.names)}"
            )
        column = batch.column(index)
        arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
