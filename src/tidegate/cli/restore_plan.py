"""`tidegate restore-plan job.conf`: what a restore would do, before anything is done.

Writes nothing and starts nothing.
"""

import contextlib
import json
import sys
from typing import Any, NoReturn

import click

from tidegate.checkpoints.open import open_storage
from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.cli import exits, job_file
from tidegate.cli import restore_options as restore_words
from tidegate.cli import run_options as run_words
from tidegate.cli.run import settings_of
from tidegate.coordinator.job_snapshot import job_of_name, read_job
from tidegate.coordinator.restore.planning import (
    Incompatible,
    NeedsConsent,
    RestoreRequest,
    prepare_restore,
)
from tidegate.coordinator.restore.report import lines
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
@run_words.options
def restore_plan(said: run_words.RunArguments) -> NoReturn:
    """Show what a restore would do: for each source, transform and sink from what it resumes, what
    is replayed, what has changed.

    \b
    Takes the options of `tidegate run`, and starts nothing.
    Exit code: 0 where the run would start, 2 bad input, 3 where it would be refused.

    \b
    Examples:
      tidegate restore-plan job.conf --restore latest
      tidegate restore-plan job.conf --restore savepoint:1763300000000 --json
    """
    settings = settings_of(said.config, said.home)
    plan = job_file.planned(said.file, said.variable, said.strict)
    try:
        said.home.create()
        with contextlib.closing(open_store(settings.store_url or said.home.store_url)) as store:
            report = planned(
                store,
                open_storage(settings.checkpoint, said.home),
                plan,
                said.name,
                said.job_id,
                said.restoring,
            )
    except (Incompatible, NeedsConsent) as error:
        tell(error.report, said.as_json)
        sys.exit(exits.REFUSED)
    except TidegateError as error:
        if said.as_json:
            click.echo(
                json.dumps(
                    {"verdict": "impossible", "condition": error.condition, "problem": str(error)},
                    indent=1,
                    ensure_ascii=False,
                )
            )
        click.echo(f"tidegate: {error}", err=True)
        sys.exit(exits.REFUSED)
    tell(report, said.as_json)
    sys.exit(exits.FINISHED)


def planned(
    store: Store,
    storage: CheckpointStorage,
    plan: Plan,
    name: str | None,
    job_id: int | None,
    restoring: restore_words.RestoreArguments,
) -> RestoreReport:
    """The plan; UserError where the run would be refused."""
    called = name or plan.job_name
    snapshot = read_job(
        store, job_id or (None if restoring.another else job_of_name(store, called)) or 0
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
        held=lambda action, offset: held(plan, action, offset),
        ask=ask_sink,
    )
    return prepare_restore(store, storage, request).report


def held(plan: Plan, action: Action, offset: Any) -> str:
    """Whether a source still has a position: it is asked, as the driver would ask it."""
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
        runway = (
            registry.find(action.kind, action.plugin)
            .of(values)
            .load()(values, context)
            .log_retention(offset)
        )
    except Exception as error:  # whatever a source or its server says: the plan shows it
        return f"could not be asked: {error}"
    return f"{'yes' if runway.held else 'NO'}{': ' if runway.reason else ''}{runway.reason}"


def tell(report: RestoreReport, as_json: bool) -> None:
    """The plan on standard output."""
    click.echo(
        json.dumps(to_document(report), indent=1, ensure_ascii=False)
        if as_json
        else "\n".join(lines(report))
    )
