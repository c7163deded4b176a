"""Coordinates of a job's graph and checkpoint timeline, for inline SVG. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.api.v1.models import CheckpointModel, Vertex
from tidegate.ui.formats import number, size

NODE_WIDTH, NODE_HEIGHT, GAP_X, GAP_Y, MARGIN = 220, 54, 110, 22, 12
TABLES_LISTED_MAX = 20
LINE_WIDTH, LINE_HEIGHT, BAR_WIDTH_MIN = 900, 90, 6


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A vertex and its upper left corner."""

    vertex: Vertex
    x: int
    y: int

    @property
    def label(self) -> str:
        """What it is, for those who cannot see it."""
        vertex = self.vertex
        what = (
            f"{vertex.kind} {vertex.operator}, {vertex.plugin}, pipeline {vertex.pipeline},"
            f" parallelism {vertex.parallelism}"
        )
        if vertex.rows is None:
            return what
        tables = (
            [f"{each.table} {number(each.rows)} rows" for each in vertex.tables[:TABLES_LISTED_MAX]]
            if len(vertex.tables) > 1
            else []
        )
        more = (
            [f"{len(vertex.tables) - TABLES_LISTED_MAX} more tables"]
            if len(vertex.tables) > TABLES_LISTED_MAX
            else []
        )
        return ", ".join(
            [
                what,
                f"{number(vertex.rows)} rows {'taken' if vertex.kind == 'sink' else 'given'}",
                *tables,
                *more,
            ]
        )


@dataclass(frozen=True, slots=True)
class Edge:
    """A curve between two nodes, with the row count above it and the rate below it."""

    path: str
    x: int
    y: int
    label: str
    rate: str = ""


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    nodes: list[DrawnNode]
    edges: list[Edge]
    width: int
    height: int


def graph(vertices: Sequence[Vertex]) -> GraphDrawing:
    """Lay out a graph: columns by distance from the sources, pipelines below each other."""
    places: dict[tuple[int, str], tuple[int, int]] = {}
    row = 0
    for part in dict.fromkeys(vertex.pipeline for vertex in vertices):
        rows: dict[int, int] = {}
        for vertex in (each for each in vertices if each.pipeline == part):
            column = max(
                (places[part, giver][0] + 1 for giver in vertex.inputs if (part, giver) in places),
                default=0,
            )
            places[part, vertex.operator] = (column, row + rows.get(column, 0))
            rows[column] = rows.get(column, 0) + 1
        row += max(rows.values(), default=0)
    nodes = [
        DrawnNode(vertex, *_corner(places[vertex.pipeline, vertex.operator])) for vertex in vertices
    ]
    known = {(vertex.pipeline, vertex.operator): vertex for vertex in vertices}
    edges = [
        _edge(places, known[vertex.pipeline, giver], vertex)
        for vertex in vertices
        for giver in vertex.inputs
        if (vertex.pipeline, giver) in places
    ]
    width = max((node.x + NODE_WIDTH for node in nodes), default=0) + MARGIN
    return GraphDrawing(
        nodes, edges, width, max((node.y + NODE_HEIGHT for node in nodes), default=0) + MARGIN
    )


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return MARGIN + place[0] * (NODE_WIDTH + GAP_X), MARGIN + place[1] * (NODE_HEIGHT + GAP_Y)


def _edge(places: dict[tuple[int, str], tuple[int, int]], giver: Vertex, vertex: Vertex) -> Edge:
    x1, y1 = _corner(places[vertex.pipeline, giver.operator])
    x2, y2 = _corner(places[vertex.pipeline, vertex.operator])
    x1, y1, y2 = x1 + NODE_WIDTH, y1 + NODE_HEIGHT // 2, y2 + NODE_HEIGHT // 2
    half = (x2 - x1) // 2
    return Edge(
        f"M{x1},{y1} C{x1 + half},{y1} {x2 - half},{y2} {x2},{y2}",
        x1 + half,
        (y1 + y2) // 2 - 6,
        *_labels(giver, vertex),
    )


def _labels(giver: Vertex, vertex: Vertex) -> tuple[str, str]:
    """Return row count and rate of an edge; empty if unknown.

    They are those of the upstream operator; else those of the sink, if it has no other input.
    """
    counted = giver
    if giver.rows is None and vertex.kind == "sink" and len(vertex.inputs) == 1:
        counted = vertex
    if counted.rows is None:
        return "", ""
    several = f"{len(counted.tables)} tables" if len(counted.tables) > 1 else ""
    rate = f"{number(counted.rows_per_second)}/s" if counted.rows_per_second is not None else ""
    return f"{number(counted.rows)} rows", " · ".join(filter(None, (rate, several)))


@dataclass(frozen=True, slots=True)
class Bar:
    """One checkpoint; its height is its duration."""

    checkpoint: CheckpointModel
    x: float
    y: float
    width: float
    height: float

    @property
    def label(self) -> str:
        """What it is, for those who cannot see it."""
        each = self.checkpoint
        kept = "retained" if each.retained else "no longer kept"
        return (
            f"{each.kind.value} {each.checkpoint}: {each.seconds:.2f} s, {size(each.bytes)},"
            f" {number(each.rows_read)} rows read, {kept}"
        )


def timeline(checkpoints: Sequence[CheckpointModel]) -> list[Bar]:
    """Lay out bars from the oldest checkpoint to the newest."""
    ordered = sorted(checkpoints, key=lambda each: each.checkpoint)
    if not ordered:
        return []
    longest = max(each.seconds for each in ordered) or 1
    step = LINE_WIDTH / max(len(ordered), 12)
    bars = []
    for index, each in enumerate(ordered):
        height = max(4.0, each.seconds / longest * (LINE_HEIGHT - 10))
        bars.append(
            Bar(
                each,
                round(index * step, 1),
                round(LINE_HEIGHT - height, 1),
                round(max(step - 4, BAR_WIDTH_MIN), 1),
                round(height, 1),
            )
        )
    return bars
