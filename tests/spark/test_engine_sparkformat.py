"""The Spark source and sink in a pipeline."""

from pathlib import Path
from typing import Any

import pytest
from engine_parts import CONTEXT, Files, Numbers, batch, graph, node, staged, table

from tidegate.connectors.sparkformat.options import CONNECTORS
from tidegate.connectors.sparkformat.sink import SparkSink
from tidegate.connectors.sparkformat.source import SparkSource
from tidegate.model.errors import UserError
from tidegate.model.job import BlockKind
from tidegate.model.records import SourceRange
from tidegate.pipeline.engine import Batch
from tidegate.plugin.contract import Limit
from tidegate.plugin.option import Block
from tidegate.spark.engine import SparkEngine
from tidegate.spark.errors import DataRefused, SqlRefused

FRAME = "tidegate.connectors.sparkformat.spark:frame"
SAVE = "tidegate.connectors.sparkformat.spark:save"


def read(kind: BlockKind, **options: Any) -> dict[str, Any]:
    connector = next(c for c in CONNECTORS if c.kind is kind)
    no_location: Any = str
    values, problems = connector.options.read(Block(options, no_location, kind.value))
    assert problems == []
    return values


def source(**options: Any):
    return node(
        "source",
        SparkSource(read(BlockKind.SOURCE, **options), CONTEXT),
        fusable=False,
        spark=FRAME,
    )


def sink(*inputs: str, **options: Any):
    return node(
        "saved",
        SparkSink(read(BlockKind.SINK, **options), CONTEXT),
        inputs or ("source",),
        fusable=False,
        spark=SAVE,
    )


def numbers(**values: Any):
    return node("source", Numbers({"tables": (table(),)} | values, CONTEXT))


def files(place: Path):
    return node("sink", Files({"place": str(place)}, CONTEXT), ("source",))


def whole() -> Batch:
    return batch(source=SourceRange({"done": False}, {"done": True}))


def test_source_infers_the_columns(spark: Any, engine: SparkEngine, tmp_path: Path) -> None:
    spark.sql(
        "select id, cast(id as decimal(5,1)) d, named_struct('x', id) s from range(100)"
    ).write.parquet(str(tmp_path / "in"))
    (tmp_path / "out").mkdir()
    written = engine.run(
        graph(
            source=source(format="parquet", path=str(tmp_path / "in")), sink=files(tmp_path / "out")
        ),
        whole(),
    )
    rows = staged(written)["default.default.default"]
    assert sorted(row["id"] for row in rows) == list(range(100))
    assert {str(row["d"]) for row in rows} >= {"0.0", "99.0"}
    assert written.rows_read == {"source": 100}


def test_source_of_several_sinks_is_counted_once(
    spark: Any, engine: SparkEngine, tmp_path: Path
) -> None:
    spark.range(50).write.parquet(str(tmp_path / "in"))
    (tmp_path / "out").mkdir()
    nodes = graph(
        source=source(format="parquet", load=str(tmp_path / "in")),
        sink=files(tmp_path / "out"),
        saved=sink(format="noop"),
    )
    written = engine.run(nodes, whole())
    assert written.rows_read == {"source": 50}
    assert written.messages["saved"] == [{"rows": 50}]
    (saved,), (given,) = written.volumes["saved"].values(), written.volumes["source"].values()
    assert (saved.rows, given.rows) == (50, 50), "what Spark moves by itself is counted in rows"
    assert sum(message["rows"] for message in written.messages["sink"]) == 50


def test_source_accepts_a_schema_and_options(engine: SparkEngine, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("1;a\n2;b\n")
    (tmp_path / "out").mkdir()
    schema = {"fields": {"id": "bigint", "name": "string"}}
    nodes = graph(
        source=source(
            format="csv", options={"sep": ";"}, path=str(tmp_path / "in.csv"), schema=schema
        ),
        sink=files(tmp_path / "out"),
    )
    assert staged(engine.run(nodes, whole()))["default.default.default"] == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b"},
    ]


def test_the_source_is_a_single_batch() -> None:
    made = SparkSource(read(BlockKind.SOURCE, format="parquet"), CONTEXT)
    start = made.initial()
    end = made.latest(start, Limit(rows=1))
    assert (
        made.is_exhausted(start),
        made.is_exhausted(end),
        made.latest(end, Limit()) == end,
        made.bounded,
    ) == (False, True, True, True)


def test_sink_appends_batches_to_partition_directories(engine: SparkEngine, tmp_path: Path) -> None:
    nodes = graph(
        source=numbers(), saved=sink(format="json", path=str(tmp_path / "out"), partition_by="id")
    )
    engine.run(nodes, batch(2))
    written = engine.run(nodes, batch(5, start=2, checkpoint=2))
    assert written.messages["saved"] == [{"rows": 3}]
    assert sorted(path.name for path in (tmp_path / "out").glob("id=*")) == [
        f"id={n}" for n in range(5)
    ]


def test_overwrite_applies_only_to_the_first_batch(
    spark: Any, engine: SparkEngine, tmp_path: Path
) -> None:
    spark.range(7).write.parquet(str(tmp_path / "out"))
    nodes = graph(
        source=numbers(), saved=sink(format="parquet", path=str(tmp_path / "out"), mode="overwrite")
    )
    engine.run(nodes, batch(2))
    engine.run(nodes, batch(5, start=2, checkpoint=2))
    assert spark.read.parquet(str(tmp_path / "out")).count() == 5


def test_existing_data_can_be_an_error(spark: Any, engine: SparkEngine, tmp_path: Path) -> None:
    spark.range(7).write.parquet(str(tmp_path / "out"))
    with pytest.raises(SqlRefused, match="PATH_ALREADY_EXISTS"):
        engine.run(
            graph(
                source=numbers(),
                saved=sink(format="parquet", path=str(tmp_path / "out"), mode="error"),
            ),
            batch(2),
        )


def test_unknown_format_is_reported(engine: SparkEngine) -> None:
    with pytest.raises(SqlRefused, match="nosuch"):
        engine.run(graph(source=numbers(), saved=sink(format="nosuch")), batch(2))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "wrong",
    [{"format": "parquet", "path": "/nowhere/at/all"}, {"format": "nosuch"}],
    ids=["path", "format"],
)
def test_failed_schema_inference_is_reported(wrong: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"^Spark cannot read format .*(nowhere|nosuch)") as caught:
        SparkSource(read(BlockKind.SOURCE, **wrong), CONTEXT).tables()
    assert "\n" not in str(caught.value)


def test_deletes_are_rejected_by_an_append_only_sink(engine: SparkEngine) -> None:
    nodes = graph(source=numbers(tables=(table(kinds=True),)), saved=sink(format="noop"))
    with pytest.raises(DataRefused, match="add FilterRowKind before it"):
        engine.run(nodes, batch(4))
    assert engine.run(nodes, batch(1)).messages["saved"] == [{"rows": 1}]
