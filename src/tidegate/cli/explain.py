"""`tidegate explain job.conf`: shows the graph, pipelines, delivery guarantees and state of a job.

Starts nothing.
"""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from tidegate.cli.exits import BAD_INPUT
from tidegate.cli.job_file import counted, load, options, print_problems, summary, values_of
from tidegate.cli.validate import problem_document
from tidegate.model.job import JobEnv, JobMode
from tidegate.model.plan import Action, Delivery, PipelinePlan, Plan
from tidegate.model.problem import Strictness
from tidegate.pipeline.pacing import BatchPacing
from tidegate.planner.drawing import draw

_DELIVERY_MEANINGS = {
    Delivery.EXACTLY_ONCE: "a batch that is repeated after a failure is recognised and skipped",
    Delivery.AT_LEAST_ONCE: "rows of a batch that is repeated after a failure may be duplicated",
}


@click.command("explain")
@click.argument("file", metavar="FILE")
@options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def explain(file: str, variable: Sequence[str], strict: Strictness, as_json: bool) -> None:
    """Show how a job runs: its graph, pipelines, delivery guarantees and operator state.

    \b
    Examples:
      tidegate explain job.conf
      tidegate explain job.conf -i day=2024-05-01 --json
    """
    planned = load(file, variables=values_of(variable), environ=os.environ, strict=strict)
    plan = planned.plan
    if as_json:
        document = {
            "file": file,
            "problems": [problem_document(p) for p in planned.problems],
            "plan": plan_document(plan) if plan else None,
        }
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        print_problems(planned.problems, sys.stderr)
        if plan is None:
            click.echo(f"{file}: {summary(planned.problems)}; there is no plan", err=True)
        else:
            click.echo("\n".join(plan_lines(plan)))
    if plan is None:
        raise SystemExit(BAD_INPUT)


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON, without option values, because some of them are secrets."""
    return {
        "job": plan.job_name,
        "mode": plan.env.mode.value,
        "batches": batch_policy(plan.env),
        "pipelines": [_pipeline_document(pipeline) for pipeline in plan.pipelines],
    }


def _pipeline_document(pipeline: PipelinePlan) -> dict[str, Any]:
    return {
        "id": pipeline.id,
        "fused": is_fused(pipeline),
        "reason": execution_path(pipeline),
        "actions": [
            {
                "operator": action.operator,
                "label": action.label,
                "kind": action.kind.value,
                "plugin": action.plugin,
                "inputs": list(action.inputs),
                "parallelism": action.parallelism,
                "delivery": action.delivery.value if action.delivery else None,
                "state": action.state,
                "fusable": action.fusable,
            }
            for action in pipeline.actions
        ],
    }


def plan_lines(plan: Plan) -> Iterator[str]:
    """Yield the human-readable lines of the plan."""
    actions = sum(len(pipeline.actions) for pipeline in plan.pipelines)
    yield (
        f"Job {plan.job_name}: {plan.env.mode.value}, {counted(len(plan.pipelines), 'pipeline')},"
        f" {counted(actions, 'action')}"
    )
    yield f"Batches: {batch_policy(plan.env)}"
    for pipeline in plan.pipelines:
        yield ""
        yield f"Pipeline {pipeline.id}: {execution_path(pipeline)}"
        yield ""
        yield from (f"  {line}" for line in draw(pipeline))
        yield ""
        for action in pipeline.actions:
            yield from _action_lines(action)


def _action_lines(action: Action) -> Iterator[str]:
    yield f"  {action.label}"
    yield f"    operator id  {action.operator}"
    yield f"    parallelism  {action.parallelism}"
    yield f"    state        {action.state}"
    if action.delivery:
        yield f"    delivery     {action.delivery.value}: {_DELIVERY_MEANINGS[action.delivery]}"


def is_fused(pipeline: PipelinePlan) -> bool:
    """Return whether the rows never enter the JVM."""
    return all(action.fusable for action in pipeline.actions)


def execution_path(pipeline: PipelinePlan) -> str:
    """Describe how a batch of this pipeline runs, and why."""
    if is_fused(pipeline):
        return "fused in Python tasks, without a DataFrame, because every action works over Arrow"
    needy = [action.label for action in pipeline.actions if not action.fusable]
    return (
        f"through a Spark DataFrame, because {' and '.join(needy)}"
        f" need{'s' if len(needy) == 1 else ''} one"
    )


def batch_policy(env: JobEnv) -> str:
    """Describe when batches begin and how much they read."""
    pace = BatchPacing.of(env)
    limits = [
        f"at most {limit:,} {unit}"
        for limit, unit in (
            (pace.rows_max, "rows"),
            (pace.bytes_max, "bytes"),
            (pace.files_max, "files"),
        )
        if limit is not None
    ]
    limits += [
        f"{rate:,g} {unit} a second for each reader"
        for rate, unit in ((pace.rows_per_second, "rows"), (pace.bytes_per_second, "bytes"))
        if rate is not None
    ]
    tail = f" ({', '.join(limits)})" if limits else ""
    if pace.interval_s is None:
        return (
            f"one after the other until the sources are read{tail}"
            if limits
            else "one: everything that the sources hold, committed at once"
        )
    if env.mode is JobMode.STREAMING:
        hurry = "" if pace.rated else ", without a pause while a source has a backlog"
        return f"one every {pace.interval_s:g} s{hurry}, each a checkpoint{tail}"
    return f"about {pace.interval_s:g} s each, one after the other, each a checkpoint{tail}"
