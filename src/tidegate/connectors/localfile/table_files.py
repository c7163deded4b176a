"""One table of a LocalFile source: its options, files, columns and reader.

Made by source.py; small and plain, since it is pickled into the tasks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from tidegate.connectors.localfile.bad_rows import BadFile
from tidegate.connectors.localfile.columnar import ColumnarReader, file_schema
from tidegate.connectors.localfile.delimited import DelimitedReader, LineReader
from tidegate.connectors.localfile.file_blocks import FilePart
from tidegate.connectors.localfile.header_checks import names_problem
from tidegate.connectors.localfile.jsonlines import JsonReader
from tidegate.connectors.localfile.listing import FileInfo, list_files, partitions_of
from tidegate.connectors.localfile.source_options import SUPPORTED, TABLE_OPTIONS
from tidegate.model.errors import TidegateError, TransientError, Unsupported, UserError
from tidegate.model.problem import Location
from tidegate.model.types import Column, DataType, Table, TypeName
from tidegate.plugin.arrow import table_of, table_schema
from tidegate.plugin.option import Block, Values
from tidegate.plugin.schema import DEFAULT_TABLE, read_schema

_STRING = DataType(TypeName.STRING)
INSPECTED_FILES_MAX = 100


class TableReader(Protocol):
    """Reads the columns in the files of one table."""

    def read(self, part: FilePart) -> Iterator[list[Any]]:
        """Yield the arrays of the columns, one list per batch."""


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table: all in its files, those that are read, and those from the path."""

    in_file: tuple[Column, ...]
    wanted: tuple[Column, ...]
    from_path: tuple[Column, ...]
    content: bool  # there is no schema: each line is one value
    exact: bool = False  # all columns of the first file are read: no file may have others


class TableFiles:
    """One table. The columns are resolved once, in the driver, and pickled into the tasks."""

    def __init__(self, index: int, values: Values, name: str) -> None:
        self.index = index
        self.values = values
        self.name = name
        self._resolved: tuple[TableColumns, Table] | None = None
        if self.form not in SUPPORTED:
            raise Unsupported(
                f"{self.form} files are not supported: use one of {', '.join(SUPPORTED)}"
            )

    @property
    def form(self) -> str:
        return str(self.values["file_format_type"])

    def files(self) -> list[FileInfo]:
        """List the existing files, in order."""
        return list_files(self.values)

    def table(self) -> Table:
        """Return the table with its columns and its name."""
        return self._resolve()[1]

    def read(self, parts: Sequence[FilePart]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of parts of files, in the table's schema."""
        columns, table = self._resolve()
        schema = table_schema(table)
        reader = self.reader(columns)
        for part in parts:
            given = partitions_of(part.path)
            for arrays in reader.read(part):
                rows = len(arrays[0]) if arrays else 0
                constant = [_repeated(given.get(c.name), rows) for c in columns.from_path]
                if rows:
                    yield pa.RecordBatch.from_arrays([*arrays, *constant], schema=schema)

    def inspect(self, rows: int) -> Iterator[str]:
        """Yield the problems of the first rows of each of the first files.

        Reads as little as possible.
        """
        try:
            found = self.files()[:INSPECTED_FILES_MAX]
        except TransientError:
            return  # unreachable at the moment: nothing to read
        for info in found:
            yield from self._inspect(FilePart(info.path, info.size, info.mtime_ns, 0, -1), rows)

    def _inspect(self, part: FilePart, rows: int) -> Iterator[str]:
        left = rows
        try:
            for batch in self.read([part]):
                left -= batch.num_rows
                if left <= 0:
                    return
        except TidegateError as error:
            yield str(error)

    def reader(self, columns: TableColumns) -> TableReader:
        """Return the reader of its format."""
        match self.form:
            case "parquet" | "orc":
                names = [c.name for c in columns.in_file]
                return ColumnarReader(self.values, columns.wanted, names=names, exact=columns.exact)
            case "json":
                return JsonReader(self.values, columns.wanted)
            case _ if columns.content:
                return LineReader(self.values)
            case _:
                return DelimitedReader(
                    self.values, columns.in_file, columns.wanted, exact=columns.exact
                )

    def _resolve(self) -> tuple[TableColumns, Table]:
        if self._resolved is None:
            files = self.files()
            first = (
                FilePart(files[0].path, files[0].size, files[0].mtime_ns, 0, -1) if files else None
            )
            base, content = self._base(first)
            columns = self._columns(base, first, content)
            key = (
                base.primary_key
                if set(base.primary_key) <= {c.name for c in columns.wanted}
                else ()
            )
            self._resolved = (
                columns,
                replace(
                    base,
                    path=self.name,
                    columns=(*columns.wanted, *columns.from_path),
                    primary_key=key,
                ),
            )
        return self._resolved

    def _base(self, first: FilePart | None) -> tuple[Table, bool]:
        """Return the table without columns from the path, and whether it has plain lines."""
        raw = self.values["schema"] or {}
        if raw.get("fields") or raw.get("columns"):
            table, problems = read_schema(Block(self.values, lambda _: Location(""), ""), raw)
            if table is None or problems:
                raise UserError(
                    f"the schema of {self.values['path']} cannot be read:"
                    f" {'; '.join(p.message for p in problems)}"
                )
            return table, False
        if self.form == "json":
            raise UserError(
                f"schema is missing: json files ({self.values['path']}) do not declare their"
                " columns"
            )
        if self.form in ("parquet", "orc"):
            return self._from_file(first), False
        if self.values["csv_use_header_line"] and self.form == "csv":
            if first is None:
                raise UserError(
                    f"there is no file in {self.values['path']} whose header could name the"
                    " columns: add a schema"
                )
            return Table(path=self.name, columns=self._from_header(first)), False
        return Table(path=self.name, columns=(Column(name="content", type=_STRING),)), True

    def _from_header(self, first: FilePart) -> tuple[Column, ...]:
        names = DelimitedReader(self.values, (), ()).header(first)
        problem = names_problem(names)
        if problem:
            raise BadFile(first.path, problem)
        return tuple(Column(name=name, type=_STRING) for name in names)

    def _from_file(self, first: FilePart | None) -> Table:
        if first is None:
            raise UserError(
                f"there is no file in {self.values['path']} to take the columns from: add a schema"
            )
        try:
            return table_of(file_schema(first, self.form), self.name)
        except TypeError as error:
            raise Unsupported(f"{first.path} has a column that cannot be read: {error}") from error

    def _columns(self, base: Table, first: FilePart | None, content: bool) -> TableColumns:
        by_name = {c.name: c for c in base.columns}
        asked = self.values["read_columns"] or list(by_name)
        unknown = [name for name in asked if name not in by_name]
        if unknown:
            raise UserError(
                f"read_columns names {', '.join(unknown)}, but the columns of {self.values['path']}"
                f" are {', '.join(by_name)}"
            )
        parse = first is not None and self.values["parse_partition_from_path"]
        keys = (
            [key for key in partitions_of(first.path) if key not in by_name]
            if parse and first is not None
            else []
        )
        schema = self.values["schema"] or {}
        given = bool(schema.get("fields") or schema.get("columns") or self.values["read_columns"])
        from_path = tuple(Column(name=key, type=_STRING) for key in keys)
        return TableColumns(
            base.columns,
            tuple(by_name[name] for name in asked),
            from_path,
            content,
            exact=not given,
        )


def _repeated(value: str | None, rows: int) -> Any:
    return (
        pa.nulls(rows, pa.string())
        if value is None
        else pa.repeat(pa.scalar(value, pa.string()), rows)
    )


def tables_of(values: Values) -> tuple[TableFiles, ...]:
    """Return the tables of a source block: one, or those of tables_configs."""
    if values["tables_configs"] is None:
        return (TableFiles(0, values, _name(values["schema"], 0)),)
    tables = []
    for index, raw in enumerate(values["tables_configs"]):
        found, _ = TABLE_OPTIONS.read(Block(raw, lambda _: Location(""), ""))
        tables.append(TableFiles(index, found, _name(found["schema"], index)))
    return tuple(tables)


def _name(schema: Mapping[str, Any] | None, index: int) -> str:
    """Return the table's name; tables without one get different defaults."""
    return str(
        (schema or {}).get("table") or (f"{DEFAULT_TABLE}_{index}" if index else DEFAULT_TABLE)
    )
