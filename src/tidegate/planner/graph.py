"""Graph algorithms over the paths of blocks: cycles, topological order, connected components.

Called by plan.py; independent of jobs.
"""

from collections.abc import Iterable, Mapping, Sequence

Inputs = Mapping[str, Sequence[str]]
"""Node -> the nodes that it reads."""


def find_cycles(nodes: Iterable[str], inputs: Inputs) -> list[list[str]]:
    """Find every cycle once, starting at its first node: each node is an input of the next."""
    cycles: list[list[str]] = []
    done: set[str] = set()
    for start in nodes:
        if start not in done:
            _follow(start, inputs, [], done, cycles)
    return cycles


def _follow(
    start: str, inputs: Inputs, trail: list[str], done: set[str], found: list[list[str]]
) -> None:
    """Walk inputs depth first, with an explicit stack: long chains exceed the recursion limit."""
    pending: list[tuple[str, int]] = [(start, 0)]
    while pending:
        node, step = pending.pop()
        if step == 0:
            trail.append(node)
        readable = inputs.get(node, ())
        if step == len(readable):
            done.add(trail.pop())
            continue
        pending.append((node, step + 1))
        producer = readable[step]
        if producer in trail:
            found.append(trail[trail.index(producer) :][::-1])
        elif producer not in done:
            pending.append((producer, 0))


def topological_order(nodes: Sequence[str], inputs: Inputs) -> list[str]:
    """Order the nodes so that every input precedes its reader; otherwise keep their order.

    The graph must have no cycle.
    """
    result: list[str] = []
    placed: set[str] = set()
    waiting = list(nodes)
    while waiting:
        ready = next(node for node in waiting if placed.issuperset(inputs.get(node, ())))
        waiting.remove(ready)
        placed.add(ready)
        result.append(ready)
    return result


def components(nodes: Sequence[str], inputs: Inputs) -> list[list[str]]:
    """The connected components. Components and their nodes keep the order of the nodes."""
    leader = {node: node for node in nodes}

    def leader_of(node: str) -> str:
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for reader, producers in inputs.items():
        for producer in producers:
            leader[leader_of(reader)] = leader_of(producer)
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(leader_of(node), []).append(node)
    return list(groups.values())
