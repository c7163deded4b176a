"""The rows that are measured with: made once from their number alone, so that every machine has the
same ones. Called by parts.py.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

STEP = 250_000
CITIES = ("Rotterdam", "Porto", "Gdansk", "Busan", "Valparaiso", "Durban", "Halifax", "Mombasa")
FIELDS = {
    "id": "bigint",
    "customer": "int",
    "product": "string",
    "quantity": "int",
    "price": "double",
    "paid": "boolean",
    "city": "string",
    "ordered": "timestamp",
}
DDL = ", ".join(
    f"{name} {'timestamp_ntz' if kind == 'timestamp' else kind}" for name, kind in FIELDS.items()
)


def orders(low: int, high: int) -> pa.RecordBatch:
    """Orders low to high - 1; each follows from its number."""
    ids = pa.array(range(low, high), pa.int64())
    mixed = pc.bit_wise_and(pc.multiply(ids, 2654435761), 0x7FFFFFFF)

    def below(bound: int) -> pa.Array:
        return pc.subtract(mixed, pc.multiply(pc.divide(mixed, bound), bound))

    columns = {
        "id": ids,
        "customer": below(400_000),
        "product": pc.binary_join_element_wise(
            "product ",
            below(9_973).cast(pa.string()),
            " of series ",
            below(97).cast(pa.string()),
            "",
        ),
        "quantity": pc.add(below(20), 1),
        "price": pc.divide(below(100_003).cast(pa.float64()), 100),
        "paid": pc.not_equal(below(5), 0),
        "city": pa.array(CITIES).take(below(len(CITIES))),
        "ordered": pc.add(below(30_000_000), 1_700_000_000).cast(pa.timestamp("s")),
    }
    return pa.RecordBatch.from_pydict(columns)


def csv_file(place: Path, rows: int) -> Path:
    """One CSV file without a header; made whole under another name first."""
    path = place / f"orders-{rows}.csv"
    if not path.exists():
        draft = path.with_suffix(".draft")
        schema = orders(0, 1).schema
        options = pa_csv.WriteOptions(include_header=False, quoting_style="none")
        with pa_csv.CSVWriter(str(draft), schema, write_options=options) as writer:
            for low in range(0, rows, STEP):
                writer.write(orders(low, min(rows, low + STEP)))
        draft.rename(path)
    return path


def small_files(place: Path, count: int, rows: int = 10) -> Path:
    """A directory of so many files of ten rows."""
    directory = place / f"small-{count}-{rows}"
    if not directory.exists():
        draft = directory.with_suffix(".draft")
        draft.mkdir(exist_ok=True)
        for number in range(count):
            pa_csv.write_csv(
                orders(number * rows, (number + 1) * rows),
                str(draft / f"part-{number:05}.csv"),
                pa_csv.WriteOptions(include_header=False, quoting_style="none"),
            )
        draft.rename(directory)
    return directory
