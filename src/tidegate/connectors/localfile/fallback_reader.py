"""Parse csv and text blocks in Python: finds and describes every row that does not fit.

Called by delimited.py. Converts good values exactly as Arrow's parser does, so that rows do not
depend on how their block was read.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tidegate.connectors.localfile.bad_rows import NULL_IN_REQUIRED_COLUMN, excerpt, size_text
from tidegate.connectors.localfile.delimited_dialect import DelimitedDialect
from tidegate.connectors.localfile.field_splitter import DelimitedRecord, FieldSplitter, FieldText
from tidegate.connectors.localfile.header_checks import width_problem
from tidegate.connectors.localfile.value_converters import ConversionRules, from_text
from tidegate.model.types import Column, TypeName
from tidegate.plugin.arrow import arrow_type

TEXTUAL = (TypeName.STRING, TypeName.BYTES, TypeName.BINARY_VECTOR)
_ABSENT = FieldText("")
Faults = dict[int, list[str]]


class FallbackReader:
    """Python reader of blocks with one layout."""

    def __init__(
        self,
        splitter: FieldSplitter,
        rules: ConversionRules,
        wanted: Sequence[Column],
        nulls: Sequence[str],
        dialect: DelimitedDialect,
        *,
        refuse_zeros: bool,
    ) -> None:
        self.splitter = splitter
        self.rules = rules
        self.wanted = wanted
        self.nulls = nulls
        self.dialect = dialect
        self.refuse_zeros = refuse_zeros

    def read(
        self, block: bytes, indexes: Sequence[int], width: int
    ) -> tuple[list[Any] | None, Faults, Callable[[int], int]]:
        """Parse a block.

        Returns the arrays (None if a row is bad), the faults by row, and a function that gives the
        offset in the block at which a row begins or is at fault.
        """
        text = block.decode("utf-8", "surrogateescape")
        records = list(self.splitter.records(text))
        faults: Faults = defaultdict(list)
        origins: dict[int, int] = {}
        for index, record in enumerate(records):
            what, origin = self._record_fault(record, width, text)
            if what:
                faults[index].append(what)
                origins[index] = origin
        arrays = [
            self._column(records, field_index, column, faults)
            for field_index, column in zip(indexes, self.wanted, strict=True)
        ]

        def start(row: int) -> int:
            return len(
                text[: origins.get(row, records[row].start)].encode("utf-8", "surrogateescape")
            )

        return None if faults else arrays, faults, start

    def _record_fault(self, record: DelimitedRecord, width: int, text: str) -> tuple[str, int]:
        """Describe what is wrong with a record as a whole, and where."""
        for field in record.fields:
            if field.fault:
                shown = excerpt(text[field.start : min(field.start + 60, record.end)].rstrip())
                advice = 'set quote_char = "" if this file does not use quotes'
                return f"quote: {field.fault} of {shown}; {advice}", field.start
        limit = self.dialect.record_bytes_max
        if record.end - record.start > limit:
            return f"the record is longer than {size_text(limit)} (max_record_bytes)", record.start
        if len(record.fields) == width:
            return "", 0
        line = text[record.start : record.end].rstrip("\r\n")
        return (
            width_problem(
                len(record.fields), width, line, self.splitter.delimiter, self.rules.leniency
            ),
            record.start,
        )

    def _column(
        self, records: list[DelimitedRecord], field_index: int, column: Column, faults: Faults
    ) -> Any:
        convert = from_text(column.type, self.rules)
        textual = column.type.name in TEXTUAL
        values: list[Any] = []
        for index, record in enumerate(records):
            field = record.fields[field_index] if 0 <= field_index < len(record.fields) else _ABSENT
            try:
                values.append(self._value(field, column, convert, textual))
            except ValueError as error:
                values.append(None)
                if index not in faults or faults[index][0].startswith("column "):
                    faults[index].append(f"column {column.name}: {error}")
        return None if faults else pa.array(values, arrow_type(column.type))

    def _value(
        self, field: FieldText, column: Column, convert: Callable[[str], Any], textual: bool
    ) -> Any:
        text = field.text
        if (not field.quoted and text in self.nulls) or (not textual and not text.strip()):
            if not column.nullable:
                raise ValueError(NULL_IN_REQUIRED_COLUMN)
            return None
        if column.type.name is not TypeName.BYTES:
            self._check_text(text)
        return convert(text)

    def _check_text(self, text: str) -> None:
        if self.refuse_zeros and "\0" in text:
            raise ValueError(
                f"{excerpt(text)} contains a zero byte: this is not text, or it has another"
                " encoding"
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raw = text.encode("utf-8", "surrogateescape")
            raise ValueError(f"the bytes {excerpt(raw)} are not UTF-8: set `encoding`") from None
