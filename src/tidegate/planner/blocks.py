"""Resolves one block of a job file: its connector, its options, and its capabilities.

Called by plan.py. Must not depend on the other blocks.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module

from tidegate.config.structure import COMMON_KEYS
from tidegate.model.job import BlockKind, JobMode, PluginBlock
from tidegate.model.problem import Problem, ProblemKind, Severity, Strictness
from tidegate.planner.seatunnel_names import SEATUNNEL_CONNECTORS, SEATUNNEL_OPTIONS
from tidegate.plugin import registry
from tidegate.plugin.connector import Capabilities, Connector
from tidegate.plugin.option import Block, Values
from tidegate.plugin.registry import BUILT_IN, UnknownConnector

_VERBS = {BlockKind.SOURCE: "read", BlockKind.SINK: "write"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedBlock:
    """A block with a known connector.

    With problems of severity error, its values are incomplete.
    """

    block: PluginBlock
    connector: Connector
    values: Values
    capabilities: Capabilities
    problems: list[Problem] = field(default_factory=list)

    @property
    def label(self) -> str:
        """`Source[0]-FakeSource`: the default name of the block."""
        return f"{self.block.kind.capitalize()}[{self.block.index}]-{self.connector.name}"

    @property
    def operator(self) -> str:
        """The key of its state: the name of the block, else the label."""
        # If the connector has an option `name`, the key is not a name of the block.
        has_option = any(option.key == "name" for option in self.connector.options.options)
        return self.label if has_option or not self.block.name else self.block.name


@dataclass(frozen=True, kw_only=True, slots=True)
class UnknownBlock:
    """A block whose connector does not exist."""

    block: PluginBlock
    problems: list[Problem]


def resolve_block(
    block: PluginBlock, mode: JobMode, strictness: Strictness
) -> ResolvedBlock | UnknownBlock:
    """Find the connector of a block, read its options, and collect all problems."""
    try:
        connector = registry.find(block.kind, block.plugin)
    except UnknownConnector as error:
        return UnknownBlock(block=block, problems=[_unknown(block, error)])
    whole = Block.of(block)
    values, problems = connector.options.read(whole, also=COMMON_KEYS)
    problems = [*problems, *_connector_problems(connector, whole, values)]
    problems = [_with_severity(problem, block, connector, strictness) for problem in problems]
    # Functions that refine capabilities may rely on valid options.
    is_wrong = any(problem.severity is Severity.ERROR for problem in problems)
    capabilities = connector.capabilities if is_wrong else connector.capabilities_of(values)
    return ResolvedBlock(
        block=block,
        connector=connector,
        values=values,
        capabilities=capabilities,
        problems=[*problems, *_mode_problems(block, connector, capabilities, mode)],
    )


def _with_severity(
    problem: Problem, block: PluginBlock, connector: Connector, strictness: Strictness
) -> Problem:
    """Set the severity of an unknown option: error or warning.

    By default it is an error, unless SeaTunnel has this option for a connector of this name: then
    the job file is valid, and the option has no effect here.
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


def _connector_problems(connector: Connector, block: Block, values: Values) -> Iterator[Problem]:
    """Run the connector's own check.

    It may be third-party code: an exception becomes a problem of this block and hides no other.
    """
    try:
        yield from connector.check(block, values) if connector.check else ()
    except RecursionError:
        yield block.problem((), f"the options of {connector.name} are nested too deeply")
    except Exception as error:
        yield block.problem(
            (),
            f"{connector.name} cannot check these options: {type(error).__name__}: {error}",
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
            f"{connector.name} never ends with these options, but a BATCH job needs a bounded"
            ' source: change the options, or set job.mode = "STREAMING"'
        )
    elif block.kind is BlockKind.SOURCE:
        message = (
            f"{connector.name} is bounded: in this STREAMING job it is read once, and its pipeline"
            " finishes when all of its sources have ended"
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
    if block.plugin.lower() in SEATUNNEL_CONNECTORS and block.kind is not BlockKind.TRANSFORM:
        name = SEATUNNEL_CONNECTORS[block.plugin.lower()]
        message = (
            f"the {block.kind.value} {name} is not available; use Spark {{ format = ... }} for"
            f" formats that Spark itself can {_VERBS[block.kind]}"
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
    """The reason why Tidegate lacks a SeaTunnel plugin (`not available: ...`); empty otherwise."""
    for module in BUILT_IN:
        sentences: Mapping[str, str] = getattr(import_module(module), "UNSUPPORTED", {})
        for name, sentence in sentences.items():
            if name.lower() == plugin.lower():
                return sentence
    return ""
