"""`plan`: a JobSpec becomes a Plan, or the list of everything that is wrong with it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from tidegate.checkpoints.paths import operator_directory
from tidegate.model.job import BlockKind, JobSpec
from tidegate.model.plan import Action, PipelinePlan, Plan
from tidegate.model.problem import Problem, ProblemKind, Severity, Strictness
from tidegate.planner.blocks import ResolvedBlock, examine
from tidegate.planner.graph import circles, components, ordered
from tidegate.planner.kinds import kind_problems
from tidegate.planner.unions import union_problems
from tidegate.planner.wiring import Edges, circle_problem, idle, wire
from tidegate.plugin.secret import packed

NAME_BYTES_MAX = 200  # file systems stop at 255; some of it is for hidden names of drafts


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """`plan` is None exactly where a problem is an error.

    `problems` are errors, warnings and notices in file order, each once.
    """

    plan: Plan | None
    problems: list[Problem]

    @property
    def errors(self) -> list[Problem]:
        """The problems that stop the job."""
        return [problem for problem in self.problems if problem.severity is Severity.ERROR]


def plan(spec: JobSpec, *, strictness: Strictness = Strictness.NORMAL) -> Planned:
    """Judge and plan a job."""
    examined = [examine(block, spec.env.mode, strictness) for block in spec.blocks()]
    known = {one.block.path: one for one in examined if isinstance(one, ResolvedBlock)}
    edges, wrong = wire(spec)
    problems = [*spec.notices, *(problem for one in examined for problem in one.problems), *wrong]
    round_trips = circles([block.path for block in spec.transforms], edges)
    blocks = {block.path: block for block in spec.blocks()}
    problems += [circle_problem([blocks[path] for path in circle]) for circle in round_trips]
    problems += union_problems(known, edges)
    problems += kind_problems(known, edges)
    problems += _operator_problems(list(known.values()))
    problems = in_file_order(problems, spec.file)
    if (
        not spec.sources
        or not spec.sinks
        or any(problem.severity is Severity.ERROR for problem in problems)
    ):
        return Planned(plan=None, problems=problems)
    return Planned(plan=_plan(spec, known, edges), problems=problems)


def in_file_order(problems: Sequence[Problem], file: str) -> list[Problem]:
    """Each problem once, those of the job file itself before those of included files, by line."""
    once = list(dict.fromkeys(problems))
    return sorted(
        once, key=lambda problem: (problem.at.file != file, problem.at.file, problem.at.line)
    )


def _operator_problems(known: Sequence[ResolvedBlock]) -> Iterator[Problem]:
    """Operator ids are the keys of state: no two blocks may share one, and each is the name of a
    directory.
    """
    owners: dict[str, ResolvedBlock] = {}
    # Labels first: they cannot clash with each other, so it is always a given name that must
    # change.
    for one in sorted(known, key=lambda one: one.operator != one.label):
        owner = owners.setdefault(one.operator, one)
        if owner is not one:
            yield _name_problem(
                one,
                f"the name {one.operator!r} is already that of {owner.label}: state is kept under"
                " it, so it must be unique in the job",
            )
        elif len(operator_directory(one.operator)) > NAME_BYTES_MAX:
            yield _name_problem(
                one,
                "the name is too long: state is kept in a directory of this name, which may have"
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


def _plan(spec: JobSpec, known: Mapping[str, ResolvedBlock], edges: Edges) -> Plan:
    unread = idle(spec, edges)
    paths = [block.path for block in spec.blocks() if block.path not in unread]
    edges = {reader: givers for reader, givers in edges.items() if reader not in unread}
    pipelines = []
    for number, members in enumerate(components(paths, edges), 1):
        actions: dict[str, Action] = {}
        for path in ordered(members, edges):
            actions[path] = _action(
                known[path], [actions[giver] for giver in edges.get(path, ())], spec.env.parallelism
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
