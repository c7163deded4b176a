"""Connects blocks by the names of their datasets. Called by plan.py.

Reads names only, so it also works for blocks whose plugin or options are wrong.

A job of one source, at most one transform and one sink is a chain, and its names may be missing.
Larger jobs declare the data flow with `plugin_output` and `plugin_input`. An input that no block
produces is an error, except in a chain whose previous block has no output name: then the reader can
mean only that block.

If several blocks produce the same name, the later one replaces the earlier one for all readers
after it, as in SeaTunnel: sources come before transforms, transforms before sinks. This is a
warning. It is an error only for a transform before all of them, because its input is ambiguous.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tidegate.model.job import BlockKind, JobSpec, Path, PluginBlock
from tidegate.model.problem import Problem, ProblemKind, Severity, closest_match

INPUT_KEYS = ("plugin_input", "source_table_name")
OUTPUT_KEYS = ("plugin_output", "result_table_name")

Edges = Mapping[str, tuple[str, ...]]
"""Path of a reading block (`sink[0]`) -> paths of its inputs, in the order of the job file."""


@dataclass(slots=True)
class _Wiring:
    """Collects the edges and problems of one job."""

    spec: JobSpec
    producers: dict[str, list[PluginBlock]] = field(
        default_factory=dict
    )  # in file order; the last one holds
    edges: dict[str, tuple[str, ...]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    # Datasets that a misspelt input probably means: that they are unread is no separate problem.
    excused: set[str] = field(default_factory=set)
    # Path of a block -> its index among sources, transforms and sinks.
    order: dict[str, int] = field(default_factory=dict)
    excuses_all: bool = False  # an input is missing, or may mean any dataset

    @property
    def is_chain(self) -> bool:
        return (
            len(self.spec.sources) == 1
            and len(self.spec.transforms) <= 1
            and len(self.spec.sinks) == 1
        )

    def add_problem(
        self,
        block: PluginBlock,
        path: Path,
        message: str,
        severity: Severity = Severity.ERROR,
        **more: str,
    ) -> None:
        dotted = block.path + "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in path
        )
        at = block.locate(path)
        self.problems.append(
            Problem(
                kind=ProblemKind.WIRING,
                message=message,
                at=at,
                path=dotted,
                severity=severity,
                **more,
            )
        )

    def collect_names(self) -> None:
        self.order = {block.path: number for number, block in enumerate(self.spec.blocks())}
        for block in (*self.spec.sources, *self.spec.transforms):
            if not block.output:
                if not self.is_chain:
                    self.add_problem(
                        block,
                        (),
                        f"plugin_output is missing: {_title(block)} must name its dataset,"
                        " because the job has several",
                    )
            else:
                self.producers.setdefault(block.output, []).append(block)

    def connect(self) -> None:
        for block in self.spec.sources:
            if block.inputs:
                self.add_problem(
                    block,
                    _input_path(block, 0),
                    "a source reads no dataset: this option is ignored",
                    Severity.NOTICE,
                )
        for block in (*self.spec.transforms, *self.spec.sinks):
            self.edges[block.path] = tuple(self._inputs(block))

    def _inputs(self, block: PluginBlock) -> Iterator[str]:
        if not block.inputs:
            if self.is_chain:
                yield self._before(block).path
            else:
                choice = f"one of {', '.join(self.producers)}" if self.producers else ""
                self.add_problem(
                    block,
                    (),
                    f"plugin_input is missing: {_title(block)} must name the dataset that it reads",
                    expected=choice,
                )
                self.excuses_all = True
        seen: set[str] = set()
        for index, name in enumerate(block.inputs):
            if name in seen:
                self.add_problem(
                    block, _input_path(block, index), f"the dataset {name!r} is named twice"
                )
            elif name in self.producers:
                yield self._producer(block, index, name).path
            else:
                yield from self._unknown_input(block, index, name)
            seen.add(name)

    def _producer(self, block: PluginBlock, index: int, name: str) -> PluginBlock:
        """The block that produces an input: the last one before the reader."""
        others = [producer for producer in self.producers[name] if producer is not block]
        if not others:
            return block  # a cycle, which is reported elsewhere
        before = [
            producer for producer in others if self.order[producer.path] < self.order[block.path]
        ]
        if not before and len(others) > 1:
            names = " and ".join(
                f"{_title(producer)} ({_line(producer, block)})" for producer in others
            )
            self.add_problem(
                block,
                _input_path(block, index),
                f"the dataset {name!r} is produced by {names}, all after this block: give them"
                " distinct names",
            )
        return before[-1] if before else others[0]

    def _unknown_input(self, block: PluginBlock, index: int, name: str) -> Iterator[str]:
        """Report an input that no block produces; in a chain, read the previous block."""
        path = _input_path(block, index)
        if self.is_chain and not self._before(block).output and len(block.inputs) == 1:
            before = self._before(block)
            self.add_problem(
                block,
                path,
                f"no block produces the dataset {name!r}: {_title(before)}, which names no dataset,"
                " is read instead",
                Severity.WARNING,
            )
            yield before.path
            return
        others = [
            dataset
            for dataset, producers in self.producers.items()
            if any(producer is not block for producer in producers)
        ]
        close = closest_match(name, others)
        self.excused.add(close)
        self.excuses_all |= self.is_chain or not close
        self.add_problem(
            block,
            path,
            f"there is no dataset {name!r}",
            expected=f"one of {', '.join(others)}" if others else "",
            suggestion=close,
        )

    def _before(self, block: PluginBlock) -> PluginBlock:
        """The block before this one in a chain."""
        return (
            self.spec.sources[0]
            if block.kind is BlockKind.TRANSFORM or not self.spec.transforms
            else self.spec.transforms[0]
        )

    def check_replaced(self) -> None:
        """Warn about every dataset name that a later block uses again."""
        read = {producer for inputs in self.edges.values() for producer in inputs}
        for name, producers in self.producers.items():
            for earlier, later in pairwise(producers):
                lost = "" if earlier.path in read else ", which no block reads: it does not run"
                message = (
                    f"the dataset {name!r} replaces that of {_title(earlier)}"
                    f" ({_line(earlier, later)}) for all blocks after this one"
                )
                self.add_problem(later, _output_path(later), message + lost, Severity.WARNING)

    def check_unread(self) -> None:
        read = {producer for inputs in self.edges.values() for producer in inputs}
        for block in (*self.spec.sources, *self.spec.transforms):
            if block.path not in read and not self._is_excused(block):
                what = (
                    f"the dataset {block.output!r}"
                    if block.output
                    else f"the output of {_title(block)}"
                )
                self.add_problem(
                    block, _output_path(block), f"no transform and no sink reads {what}"
                )

    def _is_excused(self, block: PluginBlock) -> bool:
        """Whether a reported problem already explains why no block reads this one."""
        if self.excuses_all or block.output in self.excused:
            return True
        return self.producers[block.output][-1] is not block if block.output else not self.is_chain


def wire(spec: JobSpec) -> tuple[Edges, list[Problem]]:
    """Return the edges between blocks, and all problems with the names.

    Without sources or sinks there are none.
    """
    if not spec.sources or not spec.sinks:
        return {}, []
    wiring = _Wiring(spec)
    wiring.collect_names()
    wiring.connect()
    wiring.check_replaced()
    wiring.check_unread()
    return wiring.edges, wiring.problems


def idle_blocks(spec: JobSpec, edges: Edges) -> frozenset[str]:
    """The paths of blocks whose rows reach no sink because their dataset is replaced."""
    reaching = {block.path for block in spec.sinks}
    pending = list(reaching)
    while pending:
        for producer in edges.get(pending.pop(), ()):
            if producer not in reaching:
                reaching.add(producer)
                pending.append(producer)
    return frozenset(block.path for block in spec.blocks()) - reaching


def cycle_problem(cycle: Sequence[PluginBlock]) -> Problem:
    """Make the problem of transforms that form a cycle."""
    first = cycle[0]
    flow = " -> ".join(f"{block.plugin} ({block.output})" for block in (*cycle, first))
    message = f"the transforms form a cycle: {flow}"
    path = _input_path(first, 0)
    return Problem(
        kind=ProblemKind.WIRING,
        message=message,
        at=first.locate(path),
        path=f"{first.path}.{path[0]}",
    )


def _title(block: PluginBlock) -> str:
    return f"{block.kind.value} {block.plugin}"


def _line(block: PluginBlock, seen_from: PluginBlock) -> str:
    same = block.at.line and block.at.file == seen_from.at.file
    return f"line {block.at.line}" if same else str(block.at)


def _output_path(block: PluginBlock) -> Path:
    return next(((key,) for key in OUTPUT_KEYS if key in block.options), ())


def _input_path(block: PluginBlock, index: int) -> Path:
    key = next((key for key in INPUT_KEYS if key in block.options), INPUT_KEYS[0])
    return (key, index) if isinstance(block.options.get(key), list) else (key,)
