"""Properties of plans for jobs of any shape and with any names."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.job import BlockKind, JobEnv, JobSpec, PluginBlock
from tidegate.planner.plan import Planned, plan

SCHEMA = {"schema": {"fields": {"id": "bigint"}}}
CONTENT = {
    BlockKind.SOURCE: ("FakeSource", SCHEMA),
    BlockKind.TRANSFORM: ("Sql", {"query": "select id from x"}),
    BlockKind.SINK: ("Console", {}),
}


def block(
    kind: BlockKind, index: int, *, inputs=(), output=None, name=None, parallelism=None
) -> PluginBlock:
    plugin, options = CONTENT[kind]
    return PluginBlock(
        kind=kind,
        index=index,
        plugin=plugin,
        options=options,
        inputs=tuple(inputs),
        output=output,
        name=name,
        parallelism=parallelism,
    )


def spec(sources, transforms, sinks) -> JobSpec:
    return JobSpec(
        file="job.conf",
        env=JobEnv(),
        sources=tuple(sources),
        transforms=tuple(transforms),
        sinks=tuple(sinks),
    )


@st.composite
def good_jobs(draw) -> JobSpec:
    """Jobs whose datasets all have names and readers, with transforms in any order."""
    threads = st.none() | st.integers(1, 8)
    sources = [
        block(BlockKind.SOURCE, i, output=f"s{i}", parallelism=draw(threads))
        for i in range(draw(st.integers(2, 4)))
    ]
    known = [b.output for b in sources]
    flows = []
    for i in range(draw(st.integers(0, 5))):
        flows.append((f"t{i}", draw(st.lists(st.sampled_from(known), min_size=1, unique=True))))
        known.append(f"t{i}")
    transforms = [
        block(BlockKind.TRANSFORM, i, inputs=read, output=name, parallelism=draw(threads))
        for i, (name, read) in enumerate(draw(st.permutations(flows)))
    ]
    unread = set(known) - {name for _, read in flows for name in read}
    sink_inputs = [[name] for name in sorted(unread)] + draw(
        st.lists(st.lists(st.sampled_from(known), min_size=1, unique=True), max_size=3)
    )
    return spec(
        sources,
        transforms,
        [block(BlockKind.SINK, i, inputs=read) for i, read in enumerate(sink_inputs)],
    )


names = st.sampled_from(["a", "b", "c", "dd"])
any_output = st.none() | names
any_inputs = st.lists(names, max_size=3)


@st.composite
def any_jobs(draw) -> JobSpec:
    given_names = st.none() | st.sampled_from(["x", "y", "Sink[0]-Console"])
    made = {
        kind: [
            block(kind, i, inputs=draw(any_inputs), output=draw(any_output), name=draw(given_names))
            for i in range(draw(st.integers(least, 3)))
        ]
        for kind, least in ((BlockKind.SOURCE, 0), (BlockKind.TRANSFORM, 0), (BlockKind.SINK, 0))
    }
    return spec(*made.values())


def actions(planned: Planned):
    return [
        (pipeline.id, action) for pipeline in planned.plan.pipelines for action in pipeline.actions
    ]


@given(good_jobs())
def test_every_block_is_in_one_pipeline_after_its_inputs(job: JobSpec) -> None:
    planned = plan(job)
    assert planned.problems == []
    found = actions(planned)
    assert sorted(action.label.partition("-")[0].lower() for _, action in found) == sorted(
        b.path for b in job.blocks()
    )
    order = {
        action.operator: (pipeline, position) for position, (pipeline, action) in enumerate(found)
    }
    for pipeline, action in found:
        assert all(
            order[producer][0] == pipeline and order[producer] < order[action.operator]
            for producer in action.inputs
        )
        assert bool(action.inputs) == (action.kind is not BlockKind.SOURCE)


@given(good_jobs())
def test_pipelines_are_numbered_from_one_in_the_order_of_their_sources(job: JobSpec) -> None:
    pipelines = plan(job).plan.pipelines
    assert [pipeline.id for pipeline in pipelines] == list(range(1, len(pipelines) + 1))
    firsts = [
        min(action.label for action in pipeline.of_kind(BlockKind.SOURCE)) for pipeline in pipelines
    ]
    assert firsts == sorted(firsts)


@given(good_jobs())
def test_default_parallelism_is_the_largest_of_the_inputs(job: JobSpec) -> None:
    blocks = {b.path: b for b in job.blocks()}
    by_operator = {action.operator: action for _, action in actions(plan(job))}
    for action in by_operator.values():
        own = blocks[action.label.partition("-")[0].lower()].parallelism
        assert action.parallelism == (
            own or max((by_operator[read].parallelism for read in action.inputs), default=1)
        )


@given(any_jobs())
def test_any_names_give_either_a_plan_or_an_error(job: JobSpec) -> None:
    planned = plan(job)
    assert len(set(planned.problems)) == len(planned.problems)
    if job.sources and job.sinks:
        assert (planned.plan is None) == bool(planned.errors)
    if planned.plan is not None:
        operators = [action.operator for _, action in actions(planned)]
        assert len(set(operators)) == len(operators) == len(job.blocks())
