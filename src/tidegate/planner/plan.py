"""Turns a JobSpec into a Plan, or into a list of all its problems."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from tidegate.checkpoints.paths import operator_directory
from tidegate.model.job import BlockKind, JobSpec
from tidegate.model.plan import Action, PipelinePlan, Plan
from tidegate.model.problem import Problem, ProblemKind, Severity, Strictness
from tidegate.planner.blocks import ResolvedBlock, resolve_block
from tidegate.planner.graph import components, find_cycles, topological_order
from tidegate.planner.kinds import kind_problems
from tidegate.planner.unions import union_problems
from tidegate.planner.wiring import Edges, cycle_problem, idle_blocks, wire
from tidegate.plugin.secret import packed

NAME_BYTES_MAX = 200  # file systems allow 255; names of temporary files need some of them


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The result of planning. `plan` is None if and only if a problem is an error.

    `problems` are errors, warnings and notices in file order, without duplicates.
    """

    plan: Plan | None
    problems: list[Problem]

    @property
    def errors(self) -> list[Problem]:
        """The problems that prevent the job from running."""
        return [problem for problem in self.problems if problem.severity is Severity.ERROR]


def plan(spec: JobSpec, *, strictness: Strictness = Strictness.NORMAL) -> Planned:
    """Validate a job and plan its pipelines."""
    examined = [resolve_block(block, spec.env.mode, strictness) for block in spec.blocks()]
    resolved = {block.block.path: block for block in examined if isinstance(block, ResolvedBlock)}
    edges, wrong = wire(spec)
    problems = [*spec.notices, *(problem for one in examined for problem in one.problems), *wrong]
    cycles = find_cycles([block.path for block in spec.transforms], edges)
    blocks = {block.path: block for block in spec.blocks()}
    problems += [cycle_problem([blocks[path] for path in cycle]) for cycle in cycles]
    problems += union_problems(resolved, edges)
    problems += kind_problems(resolved, edges)
    problems += _operator_problems(list(resolved.values()))
    problems = in_file_order(problems, spec.file)
    if (
        not spec.sources
        or not spec.sinks
        or any(problem.severity is Severity.ERROR for problem in problems)
    ):
        return Planned(plan=None, problems=problems)
    return Planned(plan=_plan(spec, resolved, edges), problems=problems)


def in_file_order(problems: Sequence[Problem], file: str) -> list[Problem]:
    """Remove duplicates and sort by line; the job file itself comes before included files."""
    once = list(dict.fromkeys(problems))
    return sorted(
        once, key=lambda problem: (problem.at.file != file, problem.at.file, problem.at.line)
    )


def _operator_problems(resolved: Sequence[ResolvedBlock]) -> Iterator[Problem]:
    """Yield duplicate and overlong operator ids.

    An id is the key of the operator's state and the name of a directory.
    """
    owners: dict[str, ResolvedBlock] = {}
    # Labels first: they are unique, so the problem is always reported at a name that a user chose.
    for one in sorted(resolved, key=lambda one: one.operator != one.label):
        owner = owners.setdefault(one.operator, one)
        if owner is not one:
            yield _name_problem(
                one,
                f"the name {one.operator!r} is already that of {owner.label}: it is the key of the"
                " state, so it must be unique in the job",
            )
        elif len(operator_directory(one.operator)) > NAME_BYTES_MAX:
            yield _name_problem(
                one,
                "the name is too long: it is also the name of a directory, which may have at most"
                f" {NAME_BYTES_MAX} bytes",
            )


def _name_problem(one: ResolvedBlock, message: str) -> Problem:
    block = one.block
    return Problem(
        kind=ProblemKind.WIRING,
        message=message,
        at=block.locate(("name",)),
        path=f"{block.path}.name",
    )


def _plan(spec: JobSpec, resolved: Mapping[str, ResolvedBlock], edges: Edges) -> Plan:
    unread = idle_blocks(spec, edges)
    paths = [block.path for block in spec.blocks() if block.path not in unread]
    edges = {reader: producers for reader, producers in edges.items() if reader not in unread}
    pipelines = []
    for number, members in enumerate(components(paths, edges), 1):
        actions: dict[str, Action] = {}
        for path in topological_order(members, edges):
            actions[path] = _action(
                resolved[path],
                [actions[producer] for producer in edges.get(path, ())],
                spec.env.parallelism,
            )
        pipelines.append(PipelinePlan(id=number, actions=tuple(actions.values())))
    return Plan(
        job_name=spec.env.job_name or PurePath(spec.file).stem or "job",
        env=spec.env,
        pipelines=tuple(pipelines),
        jars=spec.env.jars,
    )


def _action(one: ResolvedBlock, inputs: Sequence[Action], default_parallelism: int) -> Action:
    inherited = max((action.parallelism for action in inputs), default=default_parallelism)
    return Action(
        operator=one.operator,
        label=one.label,
        kind=one.block.kind,
        plugin=one.connector.name,
        options=packed(one.values, one.connector.options),
        inputs=tuple(action.operator for action in inputs),
        parallelism=one.block.parallelism or inherited,
        delivery=one.capabilities.delivery if one.block.kind is BlockKind.SINK else None,
        state=one.capabilities.state,
        fusable=one.capabilities.fusable,
    )
