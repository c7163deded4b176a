"""Names of datasets -> who reads whom. Called by plan.py; looks at names only, so it works for blocks whose plugin or options are wrong.

A job of one source, at most one transform and one sink is a chain, and its names may be missing. Anything larger says with `plugin_output` and
`plugin_input` what flows where. A name that nobody gives is an error in both, except in a chain whose reading block can only mean the one block before
it, because that one gives no name at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.model.job import BlockKind, JobSpec, Path, PluginBlock
from tidegate.model.problem import Problem, ProblemKind, Severity, nearest

INPUT_KEYS = ("plugin_input", "source_table_name")
OUTPUT_KEYS = ("plugin_output", "result_table_name")

Edges = Mapping[str, tuple[str, ...]]
"""Path of a reading block (`sink[0]`) -> paths of the blocks that it reads, in the order in which it names them."""


@dataclass(slots=True)
class _Wiring:
    """Collects edges and problems of one job."""

    spec: JobSpec
    givers: dict[str, PluginBlock] = field(default_factory=dict)
    edges: dict[str, tuple[str, ...]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)  # datasets that a misspelt input surely meant: that nobody reads them is no news
    excuses_all: bool = False  # an input that is missing, or could mean any dataset

    @property
    def is_chain(self) -> bool:
        return len(self.spec.sources) == 1 and len(self.spec.transforms) <= 1 and len(self.spec.sinks) == 1

    def complain(self, block: PluginBlock, path: Path, message: str, severity: Severity = Severity.ERROR, **more: str) -> None:
        dotted = block.path + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        at = block.locate(path)
        self.problems.append(Problem(kind=ProblemKind.WIRING, message=message, at=at, path=dotted, severity=severity, **more))

    def collect_names(self) -> None:
        for block in (*self.spec.sources, *self.spec.transforms):
            if not block.output:
                if not self.is_chain:
                    self.complain(block, (), f"plugin_output is missing: {_title(block)} must name the dataset that it gives, because the job has several")
            elif block.output in self.givers:
                other = self.givers[block.output]
                place = f"line {other.at.line}" if other.at.line and other.at.file == block.at.file else str(other.at)
                self.complain(block, _output_place(block), f"the dataset {block.output!r} is already given by {_title(other)} ({place})")
            else:
                self.givers[block.output] = block

    def connect(self) -> None:
        for block in self.spec.sources:
            if block.inputs:
                self.complain(block, _input_place(block, 0), "a source reads no dataset: this is ignored", Severity.NOTICE)
        for block in (*self.spec.transforms, *self.spec.sinks):
            self.edges[block.path] = tuple(self._inputs(block))

    def _inputs(self, block: PluginBlock) -> Iterator[str]:
        if not block.inputs:
            if self.is_chain:
                yield self._before(block).path
            else:
                choice = f"one of {', '.join(self.givers)}" if self.givers else ""
                self.complain(block, (), f"plugin_input is missing: {_title(block)} must say which dataset it reads", expected=choice)
                self.excuses_all = True
        seen: set[str] = set()
        for index, name in enumerate(block.inputs):
            if name in seen:
                self.complain(block, _input_place(block, index), f"the dataset {name!r} is named twice")
            elif name in self.givers:
                yield self.givers[name].path
            else:
                yield from self._stranger(block, index, name)
            seen.add(name)

    def _stranger(self, block: PluginBlock, index: int, name: str) -> Iterator[str]:
        """An input that nobody gives by this name."""
        path = _input_place(block, index)
        if self.is_chain and not self._before(block).output and len(block.inputs) == 1:
            before = self._before(block)
            self.complain(block, path, f"no block gives the dataset {name!r}: {_title(before)}, which gives no name, is read", Severity.WARNING)
            yield before.path
            return
        others = [known for known, giver in self.givers.items() if giver is not block]
        close = nearest(name, others)
        self.excused.add(close)
        self.excuses_all |= self.is_chain or not close
        self.complain(block, path, f"there is no dataset {name!r}", expected=f"one of {', '.join(others)}" if others else "", suggestion=close)

    def _before(self, block: PluginBlock) -> PluginBlock:
        """The block before this one in a chain."""
        return self.spec.sources[0] if block.kind is BlockKind.TRANSFORM or not self.spec.transforms else self.spec.transforms[0]

    def find_unread(self) -> None:
        read = {giver for inputs in self.edges.values() for giver in inputs}
        for block in (*self.spec.sources, *self.spec.transforms):
            if block.path not in read and not self._is_excused(block):
                what = f"the dataset {block.output!r}" if block.output else f"what {_title(block)} gives"
                self.complain(block, _output_place(block), f"no transform and no sink reads {what}")

    def _is_excused(self, block: PluginBlock) -> bool:
        """Whether that nobody reads a block only follows from something that is already said."""
        if self.excuses_all or block.output in self.excused:
            return True
        return self.givers.get(block.output) is not block if block.output else not self.is_chain


def wire(spec: JobSpec) -> tuple[Edges, list[Problem]]:
    """Who reads whom, and all that is wrong with the names. Without sources or sinks there is nothing to wire."""
    if not spec.sources or not spec.sinks:
        return {}, []
    wiring = _Wiring(spec)
    wiring.collect_names()
    wiring.connect()
    wiring.find_unread()
    return wiring.edges, wiring.problems


def circle_problem(circle: Sequence[PluginBlock]) -> Problem:
    """The complaint about transforms that read one another in a circle."""
    first = circle[0]
    way = " -> ".join(f"{block.plugin} ({block.output})" for block in (*circle, first))
    message = f"the transforms read one another in a circle: {way}"
    path = _input_place(first, 0)
    return Problem(kind=ProblemKind.WIRING, message=message, at=first.locate(path), path=f"{first.path}.{path[0]}")


def _title(block: PluginBlock) -> str:
    return f"{block.kind.value} {block.plugin}"


def _output_place(block: PluginBlock) -> Path:
    return next(((key,) for key in OUTPUT_KEYS if key in block.options), ())


def _input_place(block: PluginBlock, index: int) -> Path:
    key = next((key for key in INPUT_KEYS if key in block.options), INPUT_KEYS[0])
    return (key, index) if isinstance(block.options.get(key), list) else (key,)
