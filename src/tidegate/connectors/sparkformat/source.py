"""The Spark source in the driver: one batch with all rows.

Spark itself reads them (spark.py), never a task of Tidegate.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tidegate.model.errors import Unsupported, UserError
from tidegate.model.types import Table
from tidegate.plugin.contract import Limit, Offset, Source, Split
from tidegate.plugin.option import Block
from tidegate.plugin.schema import read_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.model.job import Path
    from tidegate.model.problem import Location


class SparkSource(Source):
    def tables(self) -> tuple[Table, ...]:
        """The only table: from the `schema` option, else as inferred by Spark."""
        if (given := self.declared()) is not None:
            return (given,)
        from tidegate.connectors.sparkformat.spark import found_table

        return (found_table(self),)

    def declared(self) -> Table | None:
        """The table of the `schema` block; None if there is none."""
        if self.values["schema"] is None:
            return None
        table, problems = read_schema(
            Block(self.values, _nowhere, self.context.operator), self.values["schema"]
        )
        if table is None or problems:
            raise UserError("; ".join(problem.message for problem in problems))
        return table

    @property
    def bounded(self) -> bool:
        return True  # in streaming jobs too: the existing data is read once

    def initial(self) -> Offset:
        return {"done": False}

    def latest(
        self,
        start: Offset,  # noqa: ARG002  # Spark reads everything at once
        limit: Limit,  # noqa: ARG002  # Spark reads everything at once
    ) -> Offset:
        return {"done": True}

    def is_exhausted(self, offset: Offset) -> bool:
        return bool(offset["done"])

    def splits(
        self,
        start: Offset,  # noqa: ARG002  # never called: see spark.py
        end: Offset,  # noqa: ARG002  # never called: see spark.py
        count: int,  # noqa: ARG002  # never called: see spark.py
    ) -> Sequence[Split]:
        raise Unsupported("the Spark source is read by Spark")

    def read(
        self,
        split: Split,  # noqa: ARG002  # never called: see spark.py
    ) -> Iterator["pa.RecordBatch"]:
        raise Unsupported("the Spark source is read by Spark")


def _nowhere(
    path: "Path",  # noqa: ARG001  # locations were reported when the job file was checked
) -> "Location":
    from tidegate.model.problem import Location

    return Location("")
