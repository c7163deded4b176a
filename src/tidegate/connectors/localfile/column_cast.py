"""Cast columns of parquet and orc files to the types of the schema, if no value changes.

Called by columnar.py. Arrow's safe cast refuses most losses. Those that it lets pass (a fraction of
a float, a time of day, an integer as a boolean, a number that becomes infinite) are detected by
casting back.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.connectors.localfile.bad_rows import NULL_IN_REQUIRED_COLUMN, Leniency, excerpt
from tidegate.model.types import Column
from tidegate.plugin.arrow import arrow_type


class ColumnCast:
    def __init__(self, column: Column, leniency: Leniency) -> None:
        self.column = column
        self.kind = arrow_type(column.type)
        self.leniency = leniency

    def convert(self, array: Any, rows: int) -> Any:
        """Cast an array; ArrowInvalid or ValueError if a value does not fit."""
        if array is None:
            array = pa.nulls(rows, self.kind)
        if array.null_count and not self.column.nullable:
            raise ValueError(NULL_IN_REQUIRED_COLUMN)
        if array.type == self.kind:
            return array
        self._check_types(array.type)
        if self.leniency.round_digits:
            array = self._rounded(array)
        made = array.cast(self.kind)
        if self._may_lose(array.type) and not _survives_round_trip(made, array):
            raise ValueError("the value would change")
        return made

    def faults(self, array: Any, rows: int) -> Iterator[tuple[int, str]]:
        """Yield every row whose value does not fit, with a description.

        Rows are tested one by one only in slices that fail as a whole.
        """
        if array is None:
            yield 0, "the file lacks the column, and it is not nullable"
            return
        for start in range(0, rows, 1024):  # most slices have no bad row
            stretch = array.slice(start, 1024)
            if self._fits(stretch):
                continue
            for row in range(len(stretch)):
                if not self._fits(stretch.slice(row, 1)):
                    yield start + row, self._describe(stretch[row])

    def _fits(self, array: Any) -> bool:
        try:
            self.convert(array, len(array))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            return False
        return True

    def _describe(self, value: Any) -> str:
        if not value.is_valid:
            return NULL_IN_REQUIRED_COLUMN
        advice = '; excess_digits = "round" rounds it' if self._fits_when_rounded(value) else ""
        shown = excerpt(_displayed(value))
        return f"{shown} ({value.type}) does not fit into {self.column.type}{advice}"

    def _fits_when_rounded(self, value: Any) -> bool:
        return (
            ColumnCast(self.column, Leniency(round_digits=True))._fits(
                pa.array([value.as_py()], value.type)
            )
            if _is_flat(value)
            else False
        )

    def _check_types(self, given: Any) -> None:
        """Refuse casts that Arrow supports but that change the meaning of a value."""
        number = pa.types.is_integer(given) or pa.types.is_floating(given)
        if number and (pa.types.is_temporal(self.kind) or pa.types.is_binary(self.kind)):
            raise ValueError("a number cannot be read as a time or as bytes")
        if pa.types.is_temporal(given) and pa.types.is_integer(self.kind):
            raise ValueError("a time cannot be read as a number")
        zoned = pa.types.is_timestamp(given) and given.tz is not None
        if zoned and pa.types.is_timestamp(self.kind) and self.kind.tz is None:
            raise ValueError("the time has a zone: use timestamp_tz")

    def _may_lose(self, given: Any) -> bool:
        if pa.types.is_boolean(self.kind):
            return True
        if pa.types.is_floating(given):
            return pa.types.is_decimal(self.kind) or pa.types.is_floating(self.kind)
        return pa.types.is_timestamp(given) and pa.types.is_date(self.kind)

    def _rounded(self, array: Any) -> Any:
        """Drop the digits that the type has no room for."""
        if pa.types.is_decimal(self.kind) and (
            pa.types.is_decimal(array.type) or pa.types.is_floating(array.type)
        ):
            return pc.round(array, ndigits=self.kind.scale, round_mode="half_towards_infinity")
        if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(self.kind):
            return array.cast(pa.timestamp(self.kind.unit, array.type.tz), safe=False)
        if pa.types.is_timestamp(array.type) and pa.types.is_date(self.kind):
            return pc.floor_temporal(array, unit="day")
        return array


def _survives_round_trip(made: Any, array: Any) -> bool:
    """Report whether casting back gives the original.

    A narrower float is only checked for having become infinite.
    """
    if pa.types.is_floating(made.type):
        return bool(pc.all(pc.equal(pc.is_inf(made), pc.is_inf(array))).as_py() in (True, None))
    back = made.cast(array.type, safe=False)
    return bool(pc.all(pc.equal(back, array)).as_py() in (True, None))


def _is_flat(value: Any) -> bool:
    return not pa.types.is_nested(value.type)


def _displayed(value: Any) -> Any:
    try:
        found = value.as_py()
    except (ValueError, OverflowError):
        return str(value)
    return str(found) if not isinstance(found, str | bytes | list | dict) else found
