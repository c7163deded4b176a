"""Bytes, and rows by table: SeaTunnel's keys in v2, the graph in v1, and the job page."""

from tidegate.api.v1.models import Vertex
from tidegate.model.throughput import PipelineRates, Rate, Volume
from tidegate.ui.drawing import graph

NOW_MS = 1_790_000_000_000
SOURCE, SINK = "Source[0]-FakeSource", "Sink[0]-Console"
PASSED = {SOURCE: {"db.t": Volume(40, 520), "db.u": Volume(2, 8)}, SINK: {"db.t": Volume(40, 500)}}
RATES = PipelineRates(
    rows_read=1.05,
    rows_written=1,
    operators={
        SOURCE: {"db.t": Rate(1, 13), "db.u": Rate(0.05, 0.2)},
        SINK: {"db.t": Rate(1, 12.5)},
    },
)
REFERENCE = {
    *(
        f"{what}{unit}"
        for what in ("SourceReceived", "SinkWrite")
        for unit in ("Count", "QPS", "Bytes", "BytesPerSeconds")
    ),
    *(
        f"Table{what}{unit}"
        for what in ("SourceReceived", "SinkWrite")
        for unit in ("Count", "QPS", "Bytes", "BytesPerSeconds")
    ),
}


def test_a_job_has_the_metrics_of_seatunnel_as_text(site) -> None:
    site.running(7, at_ms=NOW_MS - 41_000)
    site.pipeline(
        7,
        checkpoint=2,
        checkpoints=2,
        rows_read=42,
        rows_written=40,
        volumes=PASSED,
        confirmed_ms=NOW_MS,
    )
    site.metrics(7, rates=RATES)
    metrics = site.get("/job-info/7").json()["metrics"]
    assert set(metrics) >= REFERENCE
    assert (
        metrics["SourceReceivedBytes"],
        metrics["SourceReceivedBytesPerSeconds"],
        metrics["SinkWriteBytes"],
    ) == ("528", "13.2", "500")
    assert (metrics["TableSourceReceivedCount"], metrics["TableSinkWriteCount"]) == (
        {"db.t": "40", "db.u": "2"},
        {"db.t": "40"},
    )
    assert (metrics["TableSourceReceivedQPS"], metrics["TableSinkCommittedBytes"]) == (
        {"db.t": "1", "db.u": "0.05"},
        {"db.t": "500"},
    )


def test_an_ended_job_keeps_its_metrics_and_a_new_one_has_none(site) -> None:
    site.ended(8, volumes=PASSED)
    site.running(9)
    metrics = site.get("/job-info/8").json()["metrics"]
    assert (
        set(metrics) >= REFERENCE,
        metrics["SinkWriteBytes"],
        metrics["TableSinkWriteBytes"],
    ) == (True, "500", {"db.t": "500"})
    assert not [
        key for key in site.get("/running-jobs").json()[0]["metrics"] if key.startswith("Table")
    ]


def test_a_single_table_has_totals_only(site) -> None:
    site.ended(8, volumes={SOURCE: {"db.t": Volume(40, 520)}, SINK: {"db.t": Volume(40, 500)}})
    metrics = site.get("/job-info/8").json()["metrics"]
    assert (metrics["SinkWriteBytes"], [key for key in metrics if key.startswith("Table")]) == (
        "500",
        [],
    )


def test_each_vertex_shows_its_volume(site) -> None:
    site.running(7, at_ms=NOW_MS - 41_000)
    site.pipeline(
        7,
        checkpoint=2,
        checkpoints=2,
        rows_read=42,
        rows_written=40,
        volumes=PASSED,
        confirmed_ms=NOW_MS,
    )
    site.metrics(7, rates=RATES)
    site.ended(8, volumes=PASSED, checkpoints=2)
    for job in (site.get("/api/v1/jobs/7").json(), site.get("/api/v1/jobs/8").json()):
        source, sink = job["graph"]
        assert (source["rows"], source["bytes"], sink["rows"]) == (42, 528, 40)
        assert source["tables"] == [
            {"table": "db.t", "rows": 40, "bytes": 520},
            {"table": "db.u", "rows": 2, "bytes": 8},
        ]
        assert (job["metrics"]["bytes_read"], job["metrics"]["bytes_written"]) == (528, 500)
    assert site.get("/api/v1/jobs/7").json()["graph"][0]["rows_per_second"] == 1.05


def vertex(operator: str, kind: str, *inputs: str, rows: int | None = None) -> Vertex:
    told = {"rows": rows, "bytes": rows, "rows_per_second": 2.0} if rows is not None else {}
    return Vertex(
        operator=operator,
        label=operator,
        kind=kind,
        plugin="P",
        pipeline=1,
        inputs=list(inputs),
        parallelism=1,
        delivery=None,
        **told,
    )


def test_an_edge_shows_the_volume_of_its_operators() -> None:
    drawn = graph(
        [
            vertex("a", "source", rows=1000),
            vertex("b", "source", rows=5),
            vertex("q", "transform", "a", "b"),
            vertex("k", "sink", "q", rows=700),
        ]
    )
    assert [(edge.label, edge.rate) for edge in drawn.edges] == [
        ("1,000 rows", "2/s"),
        ("5 rows", "2/s"),
        ("700 rows", "2/s"),
    ]


def test_an_edge_without_known_volume_is_empty() -> None:
    drawn = graph(
        [
            vertex("a", "source"),
            vertex("q", "transform", "a"),
            vertex("r", "transform", "a"),
            vertex("k", "sink", "q", "r", rows=7),
        ]
    )
    assert {(edge.label, edge.rate) for edge in drawn.edges} == {("", "")}
