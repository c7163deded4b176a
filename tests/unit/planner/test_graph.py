"""Properties of topological order, components and cycles for graphs of any shape."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidegate.planner.graph import components, find_cycles, topological_order

NODES = [f"n{i}" for i in range(9)]


@st.composite
def without_cycles(draw) -> dict[str, list[str]]:
    """Nodes that each read some of the nodes before it in a hidden order."""
    hidden = draw(st.permutations(NODES))
    return {
        node: draw(st.lists(st.sampled_from(hidden[:i]), unique=True)) if i else []
        for i, node in enumerate(hidden)
    }


any_graph = st.fixed_dictionaries(
    {node: st.lists(st.sampled_from(NODES), unique=True, max_size=3) for node in NODES}
)


@given(without_cycles())
def test_every_input_precedes_its_reader_and_no_node_is_lost(inputs) -> None:
    order = topological_order(NODES, inputs)
    assert sorted(order) == NODES
    assert all(
        order.index(producer) < order.index(node) for node in NODES for producer in inputs[node]
    )


@given(without_cycles())
def test_acyclic_graph_has_no_cycles(inputs) -> None:
    assert find_cycles(NODES, inputs) == []


@given(any_graph)
def test_cycles_are_found_if_and_only_if_no_order_exists(inputs) -> None:
    left = set(NODES)
    while free := {node for node in left if not left & set(inputs[node])}:
        left -= free
    assert bool(find_cycles(NODES, inputs)) == bool(left)


@given(any_graph)
def test_each_node_of_a_cycle_is_an_input_of_the_next(inputs) -> None:
    for cycle in find_cycles(NODES, inputs):
        assert all(
            producer in inputs[reader]
            for producer, reader in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
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


def test_chain_longer_than_the_recursion_limit_works() -> None:
    nodes = [f"n{i:05}" for i in range(3000)]
    inputs = {reader: [producer] for producer, reader in pairwise(nodes)}
    assert find_cycles(nodes[::-1], inputs) == []
    assert components(nodes, inputs) == [nodes]
    assert topological_order(nodes, inputs) == nodes
