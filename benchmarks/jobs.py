"""The same work twice: as Tidegate's job files, and as what a person would write with raw PySpark.
Called by parts.py and by the sides.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import DDL, FIELDS

PREDICATE = "price > 250 and paid"
PROJECTION = ("id", "customer", "upper(city) as city", "quantity * price as amount")


def job_file(
    place: Path,
    name: str,
    source: Path,
    target: Path,
    *,
    sql: bool = False,
    env: Sequence[str] = (),
) -> Path:
    """CSV files to Parquet with zstd, through a filter and a projection or as they are."""
    fields = "\n".join(f"        {column} = {kind}" for column, kind in FIELDS.items())
    query = f"select {', '.join(PROJECTION)} from orders where {PREDICATE}"
    transform = (
        f'transform {{ Sql {{ plugin_input = "orders", plugin_output = "chosen", query = "{query}"'
        " } }"
        if sql
        else ""
    )
    text = f"""env {{
  job.name = "{name}"
  job.mode = "BATCH"
  spark.master = "local[2]"
  {chr(10).join(env)}
}}
source {{
  LocalFile {{
    plugin_output = "orders"
    path = "{source}"
    file_format_type = "csv"
    schema {{
      fields {{
{fields}
      }}
    }}
  }}
}}
{transform}
sink {{
  LocalFile {{ plugin_input = "{"chosen" if sql else "orders"}", path = "{target}"
    file_format_type = "parquet", compress_codec = "zstd" }}
}}
"""
    path = place / f"{name}.conf"
    path.write_text(text)
    return path


def console_job(place: Path) -> Path:
    """A few rows that are made up, to the terminal."""
    path = place / "console.conf"
    path.write_text("""env { job.mode = "BATCH", job.name = "console", spark.master = "local[2]" }
source { FakeSource { plugin_output = "t", row.num = 10
  schema { fields { id = bigint, name = string } } } }
sink { Console { plugin_input = "t" } }
""")
    return path


def raw_frame(spark: Any, source: str, *, sql: bool) -> Any:
    """The rows, as a plain PySpark program reads them."""
    frame = spark.read.schema(DDL).csv(source)
    return frame.where(PREDICATE).selectExpr(*PROJECTION) if sql else frame


def raw_write(frame: Any, target: str) -> None:
    frame.write.mode("append").option("compression", "zstd").parquet(target)
