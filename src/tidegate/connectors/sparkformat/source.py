"""The Spark source in the driver: a single batch, everything or nothing.

Spark itself reads (spark.py); tasks of ours never do.
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
        """The one table: from the schema that was given, else as Spark sees it."""
        if (given := self.declared()) is not None:
            return (given,)
        from tidegate.connectors.sparkformat.spark import found_table

        return (found_table(self),)

    def declared(self) -> Table | None:
        """The table of the `schema` block, where there is one."""
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
        """Always: what is there is read once."""
        return True

    def initial(self) -> Offset:
        return {"done": False}

    def latest(self, start: Offset, limit: Limit) -> Offset:  # noqa: ARG002  # Spark's readers know no part of their data
        return {"done": True}

    def is_exhausted(self, offset: Offset) -> bool:
        return bool(offset["done"])

    def splits(self, start: Offset, end: Offset, count: int) -> Sequence[Split]:  # noqa: ARG002  # never asked: see spark.py
        """Never asked: Spark cuts its data by itself."""
        raise Unsupported("the Spark source is read by Spark")

    def read(self, split: Split) -> Iterator["pa.RecordBatch"]:  # noqa: ARG002  # never asked: see spark.py
        raise Unsupported("the Spark source is read by Spark")


def _nowhere(path: "Path") -> "Location":  # noqa: ARG001  # places are told when the job file is checked, long before
    from tidegate.model.problem import Location

    return Location("")
