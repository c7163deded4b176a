"""`tidegate restore-plan job.conf`: shows what a restore would do.

Writes nothing and starts nothing.
"""

import contextlib
import json
import sys
from typing import Any, NoReturn

import click

from tidegate.checkpoints.open import open_storage
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.cli import exits, job_file, restore_options, run_options
from tidegate.cli.run import settings_of
from tidegate.coordinator.job_snapshot import job_of_name, read_job
from tidegate.coordinator.restore.planning import (
    Incompatible,
    NeedsConsent,
    RestoreRequest,
    prepare_restore,
)
from tidegate.coordinator.restore.report import report_lines
from tidegate.coordinator.restore.sink_checks import ask_sink
from tidegate.model.document import to_document
from tidegate.model.errors import TidegateError
from tidegate.model.job import JobMode
from tidegate.model.plan import Action, Plan
from tidegate.model.restore import RestoreReport
from tidegate.plugin import registry
from tidegate.plugin.contract import OperatorContext
from tidegate.plugin.secret import unpacked
from tidegate.store.base import Store
from tidegate.store.open import open_store


@click.command("restore-plan")
@run_options.options
def restore_plan(arguments: run_options.RunArguments) -> NoReturn:
    """Show what a restore would do: resume positions, replayed batches, changes.

    \b
    Takes the options of `tidegate run`, and starts nothing.
    Exit code: 0 the run would start, 2 bad input, 3 the run would be refused.

    \b
    Examples:
      tidegate restore-plan job.conf --restore latest
      tidegate restore-plan job.conf --restore savepoint:1763300000000 --json
    """
    settings = settings_of(arguments.config, arguments.home)
    plan = job_file.load_plan(arguments.file, arguments.variable, arguments.strict)
    try:
        arguments.home.create()
        with contextlib.closing(
            open_store(settings.store_url or arguments.home.store_url)
        ) as store:
            report = plan_restore(
                store,
                open_storage(settings.checkpoint, arguments.home),
                plan,
                arguments.name,
                arguments.job_id,
                arguments.restoring,
            )
    except (Incompatible, NeedsConsent) as error:
        print_report(error.report, arguments.as_json)
        sys.exit(exits.REFUSED)
    except TidegateError as error:
        if arguments.as_json:
            click.echo(
                json.dumps(
                    {"verdict": "impossible", "condition": error.condition, "problem": str(error)},
                    indent=1,
                    ensure_ascii=False,
                )
            )
        click.echo(f"tidegate: {error}", err=True)
        sys.exit(exits.REFUSED)
    print_report(report, arguments.as_json)
    sys.exit(exits.FINISHED)


def plan_restore(
    store: Store,
    storage: CheckpointStorage,
    plan: Plan,
    name: str | None,
    job_id: int | None,
    restoring: restore_options.RestoreArguments,
) -> RestoreReport:
    """Return the report; raise UserError if the run would be refused."""
    called = name or plan.job_name
    snapshot = read_job(
        store, job_id or (None if restoring.new_job else job_of_name(store, called)) or 0
    )
    state = snapshot.state.value if snapshot.state else None
    status = (
        "" if state is None and snapshot.outcome is None else state.status.value if state else ""
    )
    request = RestoreRequest(
        snapshot=snapshot,
        name=called,
        plan=plan,
        options=restoring.options,
        status=status,
        probe=lambda action, offset: probe_position(plan, action, offset),
        ask_sink=ask_sink,
    )
    return prepare_restore(store, storage, request).report


def probe_position(plan: Plan, action: Action, offset: Any) -> str:
    """Query a source, as the driver would, whether it still has a position."""
    context = OperatorContext(
        job_id=0,
        job_name=plan.job_name,
        pipeline=0,
        operator=action.operator,
        mode=plan.env.mode or JobMode.BATCH,
        parallelism=action.parallelism,
    )
    try:
        values = unpacked(action.options)
        retention = (
            registry.find(action.kind, action.plugin)
            .of(values)
            .load()(values, context)
            .log_retention(offset)
        )
    except Exception as error:  # of the source or its server; the plan shows it
        return f"could not be queried: {error}"
    return (
        f"{'yes' if retention.held else 'NO'}{': ' if retention.reason else ''}{retention.reason}"
    )


def print_report(report: RestoreReport, as_json: bool) -> None:
    """Print the report on standard output."""
    click.echo(
        json.dumps(to_document(report), indent=1, ensure_ascii=False)
        if as_json
        else "\n".join(report_lines(report))
    )
