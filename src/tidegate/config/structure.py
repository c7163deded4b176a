"""Build the JobSpec from a document.

Caller: load. Reads the four top-level blocks, the plugins in them, and the options that all plugin
blocks share. Checks only the structure; the planner checks whether plugins and datasets exist.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidegate.config.document import Data, Document, Positions
from tidegate.config.env import read_env
from tidegate.model.job import BlockKind, JobSpec, Path, PluginBlock
from tidegate.model.problem import Location, Problem, ProblemKind, Severity, closest_match
from tidegate.plugin.option import Block, Option, OptionKind, OptionSet

TOP_LEVEL = ("env", "source", "transform", "sink")

COMMON_OPTIONS = OptionSet(
    (
        Option("plugin_name", OptionKind.TEXT, "the connector", required=True),
        Option(
            "plugin_output",
            OptionKind.TEXT,
            "name of the dataset that the block produces",
            fallbacks=("result_table_name",),
        ),
        Option(
            "plugin_input",
            OptionKind.LIST,
            "datasets that the block reads",
            fallbacks=("source_table_name",),
        ),
        Option("parallelism", OptionKind.INT, "parallel tasks; else the env block's value"),
        Option("name", OptionKind.ANY, "operator id, under which the block's state is kept"),
    )
)
"""Options of every plugin block, besides those of its connector."""

COMMON_KEYS = frozenset(COMMON_OPTIONS.keys())


@dataclass(slots=True)
class Structure:
    """Reads one document.

    Call `spec` once; `problems` then holds what is wrong.
    """

    document: Document
    strict: bool
    problems: list[Problem] = field(default_factory=list)

    def spec(self) -> JobSpec:
        """Return the job, as far as it could be read."""
        self.problems += self._unknown_keys()
        env = self.document.data.get("env")
        if env is not None and not isinstance(env, dict):
            self._add_problem(("env",), "env is not a block { ... }")
            env = None
        block = Block(env or {}, lambda path: self.document.at(("env", *path)), "env")
        job_env, found = read_env(block, strict=self.strict)
        self.problems += found
        positions = _by_block(self.document.positions)
        blocks = {kind: tuple(self._blocks(kind, positions)) for kind in BlockKind}
        return JobSpec(
            file=self.document.name,
            env=job_env,
            sources=blocks[BlockKind.SOURCE],
            transforms=blocks[BlockKind.TRANSFORM],
            sinks=blocks[BlockKind.SINK],
        )

    def _add_problem(self, path: Path, message: str) -> None:
        self.problems.append(
            Problem(
                kind=ProblemKind.WIRING,
                message=message,
                at=self.document.at(path),
                path=_first(path),
            )
        )

    def _unknown_keys(self) -> Iterator[Problem]:
        for key in self.document.data:
            if key in TOP_LEVEL or key in self.document.referenced:
                continue
            head = key.partition(".")[0]
            hint = (
                f": write {head} {{ {key.partition('.')[2]} = ... }}" if head in TOP_LEVEL else ""
            )
            yield Problem(
                kind=ProblemKind.OPTION,
                message=f"{key} is not a part of a job file{hint}",
                at=self.document.at((key,)),
                path=key,
                expected=f"one of {', '.join(TOP_LEVEL)}",
                suggestion=closest_match(key, list(TOP_LEVEL)) if not hint else "",
                severity=Severity.ERROR if self.strict else Severity.WARNING,
            )

    def _blocks(self, kind: BlockKind, positions: dict[Path, Positions]) -> Iterator[PluginBlock]:
        found = self.document.data.get(kind.value)
        if found is None or found == []:
            if kind is not BlockKind.TRANSFORM:
                empty = "the file is empty: " if not self.document.data else ""
                self._add_problem(
                    (kind.value,),
                    f"{empty}there is no {kind.value}: add a block {kind.value} {{ ... }} with at"
                    " least one plugin",
                )
            return
        if not isinstance(found, list):
            self._add_problem((kind.value,), f"{kind.value} is not a list of plugins")
            return
        for index, data in enumerate(found):
            path = (kind.value, index)
            if not isinstance(data, dict):
                self._add_problem(
                    path,
                    f"every entry of {kind.value} is a plugin with its options: Name {{ ... }}",
                )
                continue
            yield from self._block(kind, index, data, positions.get(path, {}))

    def _block(
        self, kind: BlockKind, index: int, data: dict[str, Data], positions: Positions
    ) -> Iterator[PluginBlock]:
        at = self.document.at((kind.value, index))
        whole = PluginBlock(
            kind=kind, index=index, plugin="", options=data, positions=positions, at=at
        )
        own = {key: value for key, value in data.items() if key in COMMON_KEYS}
        values, problems = COMMON_OPTIONS.read(Block(own, whole.locate, whole.path))
        self.problems += problems
        if values["plugin_name"] is None:
            return
        name = values["name"]
        yield PluginBlock(
            kind=kind,
            index=index,
            plugin=values["plugin_name"],
            options=data,
            positions=positions,
            inputs=tuple(str(item) for item in values["plugin_input"] or ()),
            output=values["plugin_output"],
            name=name if isinstance(name, str) else None,
            parallelism=None if values["parallelism"] is None else max(1, values["parallelism"]),
            at=at,
        )


def _first(path: Path) -> str:
    return str(path[0]) + "".join(f"[{part}]" for part in path[1:])


def _by_block(positions: Positions) -> dict[Path, Positions]:
    """Group locations by plugin block, relative to it."""
    blocks: dict[Path, dict[Path, Location]] = {}
    for path, at in positions.items():
        if len(path) > 2:
            blocks.setdefault(path[:2], {})[path[2:]] = at
    return blocks
