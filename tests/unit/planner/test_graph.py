"""Graphs of any shape: what holds for the order, the components and the circles."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidegate.planner.graph import circles, components, ordered

NODES = [f"n{i}" for i in range(9)]


@st.composite
def without_circles(draw) -> dict[str, list[str]]:
    """Nodes in any order, each reading some that come before it in a hidden one."""
    hidden = draw(st.permutations(NODES))
    return {
        node: draw(st.lists(st.sampled_from(hidden[:i]), unique=True)) if i else []
        for i, node in enumerate(hidden)
    }


any_graph = st.fixed_dictionaries(
    {node: st.lists(st.sampled_from(NODES), unique=True, max_size=3) for node in NODES}
)


@given(without_circles())
def test_in_the_order_every_input_comes_before_its_reader_and_nothing_is_lost(inputs) -> None:
    order = ordered(NODES, inputs)
    assert sorted(order) == NODES
    assert all(order.index(giver) < order.index(node) for node in NODES for giver in inputs[node])


@given(without_circles())
def test_a_graph_without_circles_has_none(inputs) -> None:
    assert circles(NODES, inputs) == []


@given(any_graph)
def test_circles_are_found_exactly_where_no_order_exists(inputs) -> None:
    left = set(NODES)
    while free := {node for node in left if not left & set(inputs[node])}:
        left -= free
    assert bool(circles(NODES, inputs)) == bool(left)


@given(any_graph)
def test_in_a_circle_each_one_gives_to_the_next(inputs) -> None:
    for circle in circles(NODES, inputs):
        assert all(
            giver in inputs[reader]
            for giver, reader in zip(circle, [*circle[1:], circle[0]], strict=True)
        )


@given(any_graph)
def test_components_are_a_partition_that_no_edge_crosses(inputs) -> None:
    found = components(NODES, inputs)
    assert sorted(node for component in found for node in component) == NODES
    assert all(set(component) >= set(inputs[node]) for component in found for node in component)
    assert all(component == sorted(component, key=NODES.index) for component in found)
    assert [component[0] for component in found] == sorted(
        (component[0] for component in found), key=NODES.index
    )


@given(any_graph)
def test_nodes_of_a_component_reach_each_other(inputs) -> None:
    near = {
        node: {*inputs[node], *(other for other in NODES if node in inputs[other])}
        for node in NODES
    }
    for component in components(NODES, inputs):
        reached, edge = {component[0]}, {component[0]}
        while edge:
            edge = {other for node in edge for other in near[node]} - reached
            reached |= edge
        assert reached == set(component)


def test_a_chain_that_is_longer_than_pythons_stack_is_no_problem() -> None:
    nodes = [f"n{i:05}" for i in range(3000)]
    inputs = {reader: [giver] for giver, reader in pairwise(nodes)}
    assert circles(nodes[::-1], inputs) == []
    assert components(nodes, inputs) == [nodes]
    assert ordered(nodes, inputs) == nodes
