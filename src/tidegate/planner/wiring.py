"""Names of datasets -> who reads whom. Called by plan.py; looks at names only, so it works for
blocks whose plugin or options are wrong.

A job of one source, at most one transform and one sink is a chain, and its names may be missing.
Anything larger says with `plugin_output` and `plugin_input` what flows where. A name that nobody
gives is an error in both, except in a chain whose reading block can only mean the one block before
it, because that one gives no name at all.

Where several blocks give one name, the later one replaces the earlier one for those who read after
it, as in SeaTunnel: sources come before transforms, transforms before sinks. That is a warning.
Only a transform that stands before all of them has no clear answer, and that is an error.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tidegate.model.job import BlockKind, JobSpec, Path, PluginBlock
from tidegate.model.problem import Problem, ProblemKind, Severity, nearest

INPUT_KEYS = ("plugin_input", "source_table_name")
OUTPUT_KEYS = ("plugin_output", "result_table_name")

Edges = Mapping[str, tuple[str, ...]]
"""Path of a reading block (`sink[0]`) -> paths of the blocks that it reads, in the order in which
it names them.
"""


@dataclass(slots=True)
class _Wiring:
    """Collects edges and problems of one job."""

    spec: JobSpec
    givers: dict[str, list[PluginBlock]] = field(
        default_factory=dict
    )  # in file order; the last one holds
    edges: dict[str, tuple[str, ...]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    excused: set[str] = field(
        default_factory=set
    )  # datasets that a misspelt input surely meant: that nobody reads them is no news
    order: dict[str, int] = field(
        default_factory=dict
    )  # path of a block -> its place among sources, transforms and sinks
    excuses_all: bool = False  # an input that is missing, or could mean any dataset

    @property
    def is_chain(self) -> bool:
        return (
            len(self.spec.sources) == 1
            and len(self.spec.transforms) <= 1
            and len(self.spec.sinks) == 1
        )

    def complain(
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
                    self.complain(
                        block,
                        (),
                        f"plugin_output is missing: {_title(block)} must name the dataset that it"
                        " gives, because the job has several",
                    )
            else:
                self.givers.setdefault(block.output, []).append(block)

    def connect(self) -> None:
        for block in self.spec.sources:
            if block.inputs:
                self.complain(
                    block,
                    _input_place(block, 0),
                    "a source reads no dataset: this is ignored",
                    Severity.NOTICE,
                )
        for block in (*self.spec.transforms, *self.spec.sinks):
            self.edges[block.path] = tuple(self._inputs(block))

    def _inputs(self, block: PluginBlock) -> Iterator[str]:
        if not block.inputs:
            if self.is_chain:
                yield self._before(block).path
            else:
                choice = f"one of {', '.join(self.givers)}" if self.givers else ""
                self.complain(
                    block,
                    (),
                    f"plugin_input is missing: {_title(block)} must say which dataset it reads",
                    expected=choice,
                )
                self.excuses_all = True
        seen: set[str] = set()
        for index, name in enumerate(block.inputs):
            if name in seen:
                self.complain(
                    block, _input_place(block, index), f"the dataset {name!r} is named twice"
                )
            elif name in self.givers:
                yield self._giver(block, index, name).path
            else:
                yield from self._stranger(block, index, name)
            seen.add(name)

    def _giver(self, block: PluginBlock, index: int, name: str) -> PluginBlock:
        """Who gives a dataset to a block: the last one before it."""
        others = [giver for giver in self.givers[name] if giver is not block]
        if not others:
            return block  # a circle, which is complained about elsewhere
        before = [giver for giver in others if self.order[giver.path] < self.order[block.path]]
        if not before and len(others) > 1:
            names = " and ".join(f"{_title(giver)} ({_line(giver, block)})" for giver in others)
            self.complain(
                block,
                _input_place(block, index),
                f"the dataset {name!r} is given by {names}, all after this: give them names of"
                " their own",
            )
        return before[-1] if before else others[0]

    def _stranger(self, block: PluginBlock, index: int, name: str) -> Iterator[str]:
        """An input that nobody gives by this name."""
        path = _input_place(block, index)
        if self.is_chain and not self._before(block).output and len(block.inputs) == 1:
            before = self._before(block)
            self.complain(
                block,
                path,
                f"no block gives the dataset {name!r}: {_title(before)}, which gives no name, is"
                " read",
                Severity.WARNING,
            )
            yield before.path
            return
        others = [
            known
            for known, givers in self.givers.items()
            if any(giver is not block for giver in givers)
        ]
        close = nearest(name, others)
        self.excused.add(close)
        self.excuses_all |= self.is_chain or not close
        self.complain(
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

    def find_replaced(self) -> None:
        """A warning for every block that gives a name that was given before it."""
        read = {giver for inputs in self.edges.values() for giver in inputs}
        for name, givers in self.givers.items():
            for earlier, later in pairwise(givers):
                lost = "" if earlier.path in read else ", which nobody reads: it does not run"
                message = (
                    f"the dataset {name!r} replaces that of {_title(earlier)}"
                    f" ({_line(earlier, later)}) for all blocks after this one"
                )
                self.complain(later, _output_place(later), message + lost, Severity.WARNING)

    def find_unread(self) -> None:
        read = {giver for inputs in self.edges.values() for giver in inputs}
        for block in (*self.spec.sources, *self.spec.transforms):
            if block.path not in read and not self._is_excused(block):
                what = (
                    f"the dataset {block.output!r}"
                    if block.output
                    else f"what {_title(block)} gives"
                )
                self.complain(block, _output_place(block), f"no transform and no sink reads {what}")

    def _is_excused(self, block: PluginBlock) -> bool:
        """Whether that nobody reads a block only follows from something that is already said."""
        if self.excuses_all or block.output in self.excused:
            return True
        return self.givers[block.output][-1] is not block if block.output else not self.is_chain


def wire(spec: JobSpec) -> tuple[Edges, list[Problem]]:
    """Who reads whom, and all that is wrong with the names.

    Without sources or sinks there is nothing to wire.
    """
    if not spec.sources or not spec.sinks:
        return {}, []
    wiring = _Wiring(spec)
    wiring.collect_names()
    wiring.connect()
    wiring.find_replaced()
    wiring.find_unread()
    return wiring.edges, wiring.problems


def idle(spec: JobSpec, edges: Edges) -> frozenset[str]:
    """The paths of blocks whose rows reach no sink, because their dataset was replaced."""
    reaching = {block.path for block in spec.sinks}
    pending = list(reaching)
    while pending:
        for giver in edges.get(pending.pop(), ()):
            if giver not in reaching:
                reaching.add(giver)
                pending.append(giver)
    return frozenset(block.path for block in spec.blocks()) - reaching


def circle_problem(circle: Sequence[PluginBlock]) -> Problem:
    """The complaint about transforms that read one another in a circle."""
    first = circle[0]
    way = " -> ".join(f"{block.plugin} ({block.output})" for block in (*circle, first))
    message = f"the transforms read one another in a circle: {way}"
    path = _input_place(first, 0)
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


def _output_place(block: PluginBlock) -> Path:
    return next(((key,) for key in OUTPUT_KEYS if key in block.options), ())


def _input_place(block: PluginBlock, index: int) -> Path:
    key = next((key for key in INPUT_KEYS if key in block.options), INPUT_KEYS[0])
    return (key, index) if isinstance(block.options.get(key), list) else (key,)
