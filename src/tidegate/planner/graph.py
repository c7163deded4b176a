"""Arithmetic of graphs whose nodes are the paths of blocks: circles, an order, connected
components. Called by plan.py; knows no job.
"""

from collections.abc import Iterable, Mapping, Sequence

Inputs = Mapping[str, Sequence[str]]
"""Node -> the nodes that it reads."""


def circles(nodes: Iterable[str], inputs: Inputs) -> list[list[str]]:
    """Every circle once, beginning with its first node and following the flow: each node gives to
    the next.
    """
    found: list[list[str]] = []
    done: set[str] = set()
    for start in nodes:
        if start not in done:
            _follow(start, inputs, [], done, found)
    return found


def _follow(
    start: str, inputs: Inputs, trail: list[str], done: set[str], found: list[list[str]]
) -> None:
    """Depth first along the inputs, with a stack of our own: a chain may be longer than Python's."""
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
        giver = readable[step]
        if giver in trail:
            found.append(trail[trail.index(giver) :][::-1])
        elif giver not in done:
            pending.append((giver, 0))


def ordered(nodes: Sequence[str], inputs: Inputs) -> list[str]:
    """The nodes so that every input comes before its reader; otherwise as they came.

    There must be no circle.
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
    """The connected components; they and the nodes in them in the order in which the nodes came."""
    leader = {node: node for node in nodes}

    def leader_of(node: str) -> str:
        while leader[node] != node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for reader, givers in inputs.items():
        for giver in givers:
            leader[leader_of(reader)] = leader_of(giver)
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(leader_of(node), []).append(node)
    return list(groups.values())
