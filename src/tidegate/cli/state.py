"""`tidegate state du|gc|verify|forget|expire`: usage, integrity and garbage collection of state.

The state is in the checkpoint storage and in the store.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from tidegate.checkpoints.gc.classify import MINUTE_MS, UnitKind, UnitVerdict
from tidegate.checkpoints.gc.collector import Collector, CollectorSettings, Report
from tidegate.checkpoints.gc.usage import Usage
from tidegate.checkpoints.manifest import Damaged
from tidegate.checkpoints.savepoints import Savepoints
from tidegate.cli import exits
from tidegate.cli.installation import LocalInstallation, installation
from tidegate.cli.state_tables import (
    LISTED_MAX,
    quarantine_lines,
    usage_document,
    usage_lines,
    verdict_document,
    verdict_lines,
)
from tidegate.clock import SystemClock
from tidegate.coordinator.collector import StoreFacts, last_report, record, report_of, rules_of
from tidegate.coordinator.damaged_documents import (
    damage_of,
    damaged_documents,
    forget_document,
    forget_job,
)
from tidegate.coordinator.history_expiry import expire, expired
from tidegate.coordinator.namespace_owner import claim_namespace
from tidegate.model.byte_size import format_size as size
from tidegate.model.document import NewerDocument, from_document, to_document
from tidegate.model.errors import UserError
from tidegate.model.maintenance import EXPIRED_JOBS
from tidegate.model.records import (
    JOB_OUTCOMES,
    JOB_STATES,
    PIPELINES,
    RUNNING_JOBS,
    JobStatus,
    PipelineState,
)
from tidegate.store.base import Store, undamaged

HOME = click.option("--home", help="Directory of the installation (TIDEGATE_HOME).")
CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The engine's file.  [default: TIDEGATE_CONFIG, or tidegate.yaml of the home]",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(name="state")
def state() -> None:
    """Inspect, verify and collect the state of jobs in the checkpoint storage and the store.

    \b
    Examples:
      tidegate state du
      tidegate state gc
      tidegate state verify
    """


@state.command()
@HOME
@CONFIG
@AS_JSON
def du(home: str | None, config: Path | None, as_json: bool) -> None:
    """Show the disk usage by kind, age and job, and the size of the store by map.

    \b
    live         of a job that has not ended
    retained     restore points of an ended job
    claimed      a restore uses it now
    savepoint    kept until a user deletes it
    orphan       no record refers to it; `state gc` collects it
    quarantined  collected; can be restored
    unknown      not created by Tidegate; never touched
    """
    with installation(home, config) as here:
        rules = rules_of(here.settings.checkpoint, SystemClock().now_ms())
        usage = Usage()
        for verdict in Collector(here.storage.files, StoreFacts(here.store)).survey(rules):
            usage.add(verdict)
        names, sizes = names_of(here.store), here.store.size_by_map()
        warning = rules.quota.warning(usage.total.bytes)
        if as_json:
            last = last_report(here.store)
            store = {
                name: {"documents": each.entries, "bytes": each.bytes}
                for name, each in sorted(sizes.items())
            }
            document = {
                "namespace": here.storage.files.describe(),
                **usage_document(usage, names),
                "warning": warning,
                "store": store,
            }
            click.echo(
                json.dumps({**document, "collector": to_document(last) if last else None}, indent=1)
            )
            return
        echo(usage_lines(here.storage.files.describe(), usage, names, sizes, warning))
        if usage.due.units:
            click.echo(
                f"\n{usage.due.units} units ({size(usage.due.bytes)}) can be collected: tidegate"
                " state gc"
            )


@state.command()
@HOME
@CONFIG
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only show what would be collected. This is the default without --collect.",
)
@click.option(
    "--collect",
    is_flag=True,
    help="Move orphans into quarantine, and delete expired quarantines.",
)
@click.option(
    "--older-than",
    type=click.IntRange(0),
    metavar="MINUTES",
    help="Minimum age of orphans; overrides checkpoint.orphan-ttl.",
)
@click.option(
    "--undo",
    metavar="ID",
    help="Move everything of a quarantine back; `latest` is the newest.",
)
@click.option(
    "--purge",
    is_flag=True,
    help="Delete all quarantines now, without waiting for checkpoint.quarantine-delay.",
)
@click.option(
    "--take-namespace",
    is_flag=True,
    help="Assign this namespace to this store, because its former store is permanently lost.",
)
@AS_JSON
def gc(**options: Any) -> None:
    """Collect orphaned state. Without --collect, only show it.

    \b
    Collected state goes into quarantine, from which it can be restored for
    checkpoint.quarantine-delay. Never touched: jobs in the store, state that a restore is about to
    use, savepoints, files that Tidegate has not created. A server does the same periodically, by
    checkpoint.orphan-ttl.
    Exit code 1: something could not be moved or deleted; the rest was.
    """
    if options["dry_run"] and (options["collect"] or options["undo"] or options["purge"]):
        raise click.UsageError("--dry-run shows what would be done; leave it out to do it")
    with installation(options["home"], options["config"]) as here:
        now_ms = SystemClock().now_ms()
        older_ms = None if options["older_than"] is None else options["older_than"] * MINUTE_MS
        rules = rules_of(here.settings.checkpoint, now_ms, older_than_ms=older_ms)
        collector = Collector(here.storage.files, StoreFacts(here.store))
        if options["undo"]:
            code = undo_quarantine(collector, options["undo"], now_ms)
        elif options["collect"] or options["purge"]:
            claim_namespace(here.storage.files, here.store, take=options["take_namespace"])
            code = collect(here, collector, rules, options)
        else:
            code = show_plan(collector, rules, options["older_than"], options["as_json"])
    sys.exit(code)


def undo_quarantine(collector: Collector, id: str, now_ms: int) -> int:
    moved, failed = collector.quarantines.restore(collector.quarantines.find(id), now_ms)
    click.echo(f"{moved} units restored to their original paths")
    echo(failed, err=True)
    return exits.FAILED if failed else exits.FINISHED


def collect(
    here: LocalInstallation, collector: Collector, rules: CollectorSettings, options: dict[str, Any]
) -> int:
    """Run one collection pass, and print its report."""
    if options["purge"]:
        rules = CollectorSettings(
            policy=rules.policy, delay_ms=0, orphans_ms=rules.orphans_ms, quota=rules.quota
        )
    report = collector.collect(rules) if options["collect"] else collector.delete_only(rules)
    if options["collect"]:
        record(here.store, report_of(report, rules, 0), report.usage.by_job)
    if options["as_json"]:
        click.echo(json.dumps(to_document(report_of(report, rules, 0)), indent=1))
    else:
        echo(report_lines(report, collector, rules))
    return exits.FAILED if report.failures else exits.FINISHED


def report_lines(report: Report, collector: Collector, rules: CollectorSettings) -> Iterable[str]:
    """Describe what a pass did."""
    yield (
        f"{report.moved} units ({size(report.moved_bytes)}) moved into quarantine, {report.deleted}"
        " deleted for good"
    )
    if report.put_back:
        yield f"{report.put_back} units put back, because they are in use again"
    yield from (f"failed: {what}" for what in report.failed)
    if report.failures > len(report.failed):
        yield f"and {report.failures - len(report.failed)} more failures"
    yield from quarantine_lines(collector.quarantines.all(), rules.delay_ms, rules.policy.now_ms)


def show_plan(
    collector: Collector, rules: CollectorSettings, older_than: int | None, as_json: bool
) -> int:
    """Show what would be collected, and units of unknown origin."""
    usage, more = Usage(), 0
    listed: list[UnitVerdict] = []
    for verdict in collector.survey(collector.apply_quota(rules)):
        usage.add(verdict)
        if verdict.due or verdict.kind in (UnitKind.ORPHAN, UnitKind.UNKNOWN):
            if len(listed) < LISTED_MAX or as_json:
                listed.append(verdict)
            else:
                more += 1
    quarantines = collector.quarantines.all()
    if as_json:
        units = [verdict_document(verdict) for verdict in listed]
        click.echo(
            json.dumps(
                {
                    **usage_document(usage, {}),
                    "units": units,
                    "quarantines": to_document(quarantines),
                },
                indent=1,
            )
        )
        return exits.FINISHED
    due = [verdict for verdict in listed if verdict.due]
    waiting = [verdict for verdict in listed if verdict.kind is UnitKind.ORPHAN and not verdict.due]
    unknown = [verdict for verdict in listed if verdict.kind is UnitKind.UNKNOWN]
    for head, verdicts in (
        ("would be collected", due),
        ("orphans that are too young", waiting),
        ("not created by Tidegate, never touched", unknown),
    ):
        if verdicts:
            click.echo(f"{head}:")
            echo(verdict_lines(verdicts, 0))
    if more:
        click.echo(f"and {more} more units; --json has all of them")
    echo(quarantine_lines(quarantines, rules.delay_ms, rules.policy.now_ms))
    again = "tidegate state gc --collect" + (
        f" --older-than {older_than}" if older_than is not None else ""
    )
    click.echo(
        f"{usage.due.units} units ({size(usage.due.bytes)}) would go into quarantine. Nothing was"
        f" changed; to do it: {again}"
    )
    return exits.FINISHED


@state.command()
@HOME
@CONFIG
@AS_JSON
def verify(home: str | None, config: Path | None, as_json: bool) -> None:
    """Verify all documents of the store, all its checkpoints, and all savepoints.

    Every byte is checked. Exit code 1 if something is damaged or missing.
    """
    with installation(home, config) as here:
        rows = [*document_rows(here), *checkpoint_rows(here), *savepoint_rows(here)]
    damaged = [row for row in rows if row["damage"]]
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    else:
        echo(f"{row['kind']} {row['path']}: {row['damage']}" for row in damaged)
        click.echo(f"{len(rows) - len(damaged)} of {len(rows)} are sound")
    sys.exit(exits.FAILED if damaged else exits.FINISHED)


def document_rows(here: LocalInstallation) -> Iterable[dict[str, str]]:
    """Yield a row for each damaged document of the store."""
    for each in damaged_documents(here.store):
        yield {"kind": "document", "path": f"{each.map}/{each.key}", "damage": each.why}


@state.command()
@click.argument("what", metavar="JOB_ID|MAP/KEY")
@HOME
@CONFIG
def forget(what: str, home: str | None, config: Path | None) -> None:
    """Delete damaged documents from the store: all of a job, or one that belongs to no job.

    Only documents that `tidegate state verify` reports as damaged can be deleted. The job's
    checkpoints, savepoints and rows are kept; resume it from them.

    \b
    Examples:
      tidegate state forget 7
      tidegate run job.conf --job-id 7 --restore latest
    """
    with installation(home, config) as here:
        map, slash, key = what.partition("/")
        if what.isascii() and what.isdigit():
            count = forget_job(here.store, int(what))
            click.echo(
                f"{count} documents of job {what} deleted; its checkpoints are kept: resume it with"
                " --restore latest"
            )
        elif slash:
            forget_document(here.store, map, key)
            click.echo(f"{what} deleted")
        else:
            raise UserError(
                f"{what!r} is neither the id of a job nor a document (MAP/KEY) as `tidegate state"
                " verify` names it"
            )


def checkpoint_rows(here: LocalInstallation) -> Iterable[dict[str, str]]:
    """Yield a row for every checkpoint that a record refers to.

    One that is no longer referred to after it was read was replaced meanwhile, and is left out.
    """
    for entry in here.store.list(PIPELINES):
        if damage_of(PIPELINES, entry):
            continue  # already reported as a document
        for ref in from_document(PipelineState, entry.value, f"pipeline {entry.key}").retained:
            damage = here.storage.damage(ref.path)
            if damage and not is_still_named(here.store, entry.key, ref.path):
                continue
            yield {"kind": "checkpoint", "path": ref.path, "damage": damage}


def is_still_named(store: Store, key: str, path: str) -> bool:
    """Return whether a pipeline's record refers to a checkpoint now."""
    entry = store.get(PIPELINES, key)
    return entry is not None and any(
        ref.path == path
        for ref in from_document(PipelineState, entry.value, f"pipeline {key}").retained
    )


def savepoint_rows(here: LocalInstallation) -> Iterable[dict[str, str]]:
    savepoints = Savepoints(here.storage.files)
    for savepoint in savepoints.list():
        damage = ""
        try:
            savepoints.read(savepoint.path)
        except (Damaged, NewerDocument) as error:
            damage = str(error)
        yield {"kind": "savepoint", "path": savepoint.path, "damage": damage}
    for path, why in savepoints.damaged():
        yield {"kind": "savepoint", "path": path, "damage": why}


@state.command(name="expire")
@HOME
@CONFIG
@click.option(
    "--older-than",
    type=click.IntRange(0),
    metavar="MINUTES",
    help="Minimum time since the end; overrides history-job-expire-minutes.",
)
@click.option("--dry-run", is_flag=True, help="Only show them.")
@AS_JSON
def expire_command(
    home: str | None, config: Path | None, older_than: int | None, dry_run: bool, as_json: bool
) -> None:
    """Delete ended jobs from the store, as servers do periodically.

    Deletes their outcome, metrics and checkpoint records. Checkpoint and savepoint directories are
    kept. Those checkpoints become orphans, which `tidegate state gc` collects.
    """
    with installation(home, config) as here:
        now_ms = SystemClock().now_ms()
        minutes = here.settings.history_expire_minutes if older_than is None else older_than
        before_ms = now_ms - minutes * MINUTE_MS
        gone = [
            job
            for job in expired(here.store, before_ms)
            if dry_run or expire(here.store, job.job_id, before_ms, now_ms)
        ]
        if gone and not dry_run:
            here.store.compact()
    if as_json:
        rows = [
            {
                "job_id": job.job_id,
                "name": job.name,
                "status": job.status.value,
                "finished_ms": job.finished_ms,
            }
            for job in gone
        ]
        click.echo(json.dumps({"dry_run": dry_run, "expired": rows}, indent=1))
        return
    echo(f"job {job.job_id} ({job.name}), {job.status.value}" for job in gone)
    click.echo(
        f"{len(gone)} jobs {'would be ' if dry_run else ''}deleted from the store; their checkpoint"
        " and savepoint directories are kept"
    )


def names_of(store: Store) -> dict[int, tuple[str, str]]:
    """Return name and status of every job of the store, also of expired ones."""
    names = {
        int(e.key): (str(e.value.get("name", "")), f"expired, was {e.value.get('status')}")
        for e in undamaged(store.list(EXPIRED_JOBS))
    }
    names |= {
        int(e.key): (str(e.value.get("name", "")), str(e.value.get("status", "")))
        for e in undamaged(store.list(JOB_OUTCOMES))
    }
    statuses = {
        int(e.key): JobStatus(e.value["status"]).value for e in undamaged(store.list(JOB_STATES))
    }
    names |= {
        int(e.key): (str(e.value.get("name", "")), statuses.get(int(e.key), ""))
        for e in undamaged(store.list(RUNNING_JOBS))
    }
    return names


def echo(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        click.echo(line, err=err)
