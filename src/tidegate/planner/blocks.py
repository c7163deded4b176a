"""One block of a job file by itself: its connector, its options, what it can do with them.

Called by plan.py; knows nothing of the other blocks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module

from tidegate.config.structure import COMMON_KEYS
from tidegate.model.job import BlockKind, JobMode, PluginBlock
from tidegate.model.problem import Problem, ProblemKind, Severity, Strictness
from tidegate.planner.elsewhere import REFERENCE_NAMES, SEATUNNEL_OPTIONS
from tidegate.plugin import registry
from tidegate.plugin.connector import Capabilities, Connector
from tidegate.plugin.option import Block, Values
from tidegate.plugin.registry import BUILT_IN, UnknownConnector

_VERBS = {BlockKind.SOURCE: "read", BlockKind.SINK: "write"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedBlock:
    """A block whose connector is there.

    With problems of severity error its values are only what could be read.
    """

    block: PluginBlock
    connector: Connector
    values: Values
    capabilities: Capabilities
    problems: list[Problem] = field(default_factory=list)

    @property
    def label(self) -> str:
        """`Source[0]-FakeSource`: the block's name where it has none of its own."""
        return f"{self.block.kind.capitalize()}[{self.block.index}]-{self.connector.name}"

    @property
    def operator(self) -> str:
        """The key of its state: the name it was given, else the label."""
        if not self.block.name or any(
            option.key == "name" for option in self.connector.options.options
        ):  # then the word is the connector's, not ours
            return self.label
        return self.block.name


@dataclass(frozen=True, kw_only=True, slots=True)
class UnknownBlock:
    """A block whose connector is not there."""

    block: PluginBlock
    problems: list[Problem]


def examine(
    block: PluginBlock, mode: JobMode, strictness: Strictness
) -> ResolvedBlock | UnknownBlock:
    """Everything that can be said about a block alone."""
    try:
        connector = registry.find(block.kind, block.plugin)
    except UnknownConnector as error:
        return UnknownBlock(block=block, problems=[_unknown(block, error)])
    whole = Block.of(block)
    values, problems = connector.options.read(whole, also=COMMON_KEYS)
    problems = [*problems, *_deeper(connector, whole, values)]
    problems = [_weighed(problem, block, connector, strictness) for problem in problems]
    # Options that are wrong promise nothing; and what refines capabilities may take right ones for
    # granted.
    is_wrong = any(problem.severity is Severity.ERROR for problem in problems)
    capabilities = connector.capabilities if is_wrong else connector.capabilities_of(values)
    return ResolvedBlock(
        block=block,
        connector=connector,
        values=values,
        capabilities=capabilities,
        problems=[*problems, *_mode_problems(block, connector, capabilities, mode)],
    )


def _weighed(
    problem: Problem, block: PluginBlock, connector: Connector, strictness: Strictness
) -> Problem:
    """An unknown option as an error or a warning.

    By default it is an error, unless SeaTunnel knows it for a connector of this name: such a job
    file is right, and the option only has no effect here.
    """
    if problem.kind is not ProblemKind.UNKNOWN_OPTION or strictness is Strictness.LENIENT:
        return problem
    key = problem.path.removeprefix(f"{block.path}.")
    if strictness is Strictness.NORMAL and key in _without_effect(connector):
        return replace(problem, message=f"{key} has no effect here", suggestion="")
    return replace(problem, severity=Severity.ERROR)


def _without_effect(connector: Connector) -> frozenset[str]:
    twins = [c for c in registry.connectors() if c.name == connector.name and c is not connector]
    return SEATUNNEL_OPTIONS.union(*(twin.options.keys() for twin in twins))


def _deeper(connector: Connector, block: Block, values: Values) -> Iterator[Problem]:
    """What the connector itself finds.

    It may be anybody's code: where it stumbles, that is a problem of this block and hides no other.
    """
    try:
        yield from connector.check(block, values) if connector.check else ()
    except RecursionError:
        yield block.problem((), f"the options of {connector.name} are nested too deeply")
    except Exception as error:
        yield block.problem(
            (),
            f"{connector.name} cannot make sense of these options: {type(error).__name__}: {error}",
        )


def _mode_problems(
    block: PluginBlock, connector: Connector, capabilities: Capabilities, mode: JobMode
) -> list[Problem]:
    able = capabilities.batch if mode is JobMode.BATCH else capabilities.streaming
    if able:
        return []
    severity = Severity.ERROR
    if block.kind is BlockKind.SOURCE and mode is JobMode.BATCH:
        message = (
            f"{connector.name} never ends with these options: a BATCH job needs a source that does"
            ' (or set job.mode = "STREAMING")'
        )
    elif block.kind is BlockKind.SOURCE:
        message = (
            f"{connector.name} comes to an end: in this STREAMING job it is read once, and its"
            " pipeline finishes when all its sources have"
        )
        severity = Severity.NOTICE
    else:
        message = f"{connector.name} cannot be used in a {mode.value} job with these options"
    return [
        Problem(
            kind=ProblemKind.OPTION,
            message=message,
            at=block.at,
            path=block.path,
            severity=severity,
        )
    ]


def _unknown(block: PluginBlock, error: UnknownConnector) -> Problem:
    at, kind = block.at, ProblemKind.UNKNOWN_PLUGIN
    reason = unsupported(block.plugin)
    if reason:
        return Problem(kind=kind, message=f"{block.plugin} is {reason}", at=at, path=block.path)
    if block.plugin.lower() in REFERENCE_NAMES and block.kind is not BlockKind.TRANSFORM:
        name = REFERENCE_NAMES[block.plugin.lower()]
        message = (
            f"the {block.kind.value} {name} is not available; Spark {{ format = ... }} serves what"
            f" Spark itself can {_VERBS[block.kind]}"
        )
        return Problem(kind=kind, message=message, at=at, path=block.path)
    here = [c.name for c in registry.connectors() if c.kind is block.kind]
    other = _of_other_kind(block)
    if other and not error.suggestion:
        return Problem(
            kind=kind,
            message=f"{block.plugin} is a {' and a '.join(other)}, not a {block.kind.value}",
            at=at,
            path=block.path,
        )
    message = f"there is no {block.kind.value} {block.plugin!r}"
    message += "".join(f". {package}" for package in registry.broken_packages())
    return Problem(
        kind=kind,
        message=message,
        at=at,
        path=block.path,
        expected=f"one of {', '.join(here)}",
        suggestion=error.suggestion,
    )


def _of_other_kind(block: PluginBlock) -> list[str]:
    return [
        c.kind.value
        for c in registry.connectors()
        if c.kind is not block.kind
        and block.plugin.lower() in (c.name.lower(), *(a.lower() for a in c.aliases))
    ]


def unsupported(plugin: str) -> str:
    """Why a plugin that is known is not there (`not available: ...`); empty for any other name."""
    for module in BUILT_IN:
        sentences: Mapping[str, str] = getattr(import_module(module), "UNSUPPORTED", {})
        for name, sentence in sentences.items():
            if name.lower() == plugin.lower():
                return sentence
    return ""
