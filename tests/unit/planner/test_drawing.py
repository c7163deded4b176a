"""The graph of a pipeline as text."""

from tidegate.planner.drawing import draw


def test_a_chain_is_drawn_from_source_to_sink(job) -> None:
    plan = job.good(
        source=job.fake("a", "name = orders"),
        transform='Sql { query = "select id from a" }',
        sink="Console {}",
    )
    assert draw(plan.pipelines[0]) == [
        "Source[0]-FakeSource (orders)",
        "└─> Transform[0]-Sql",
        "    └─> Sink[0]-Console",
    ]


def test_a_shared_block_is_drawn_once_and_then_only_named(job) -> None:
    plan = job.good(
        source=job.fake("a") + job.fake("b"),
        transform='Sql { query = "select id from a", plugin_input = [a, b], plugin_output = c }',
        sink=(
            "Console { plugin_input = c }\nConsole { plugin_input = a }\nConsole { plugin_input"
            " = c }"
        ),
    )
    assert draw(plan.pipelines[0]) == [
        "Source[0]-FakeSource",
        "├─> Transform[0]-Sql",
        "│   ├─> Sink[0]-Console",
        "│   └─> Sink[2]-Console",
        "└─> Sink[1]-Console",
        "Source[1]-FakeSource",
        "└─> Transform[0]-Sql ... as above",
    ]
