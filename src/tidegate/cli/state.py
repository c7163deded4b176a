"""`tidegate state du|gc|verify|forget|expire`: what lies in the checkpoint storage and in the
store, whether it is sound, and what of it can go.
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
from tidegate.coordinator.collector import StoreWitness, last_report, record, report_of, rules_of
from tidegate.coordinator.damaged_documents import (
    damage_of,
    damaged_documents,
    forget_document,
    forget_job,
)
from tidegate.coordinator.history_expiry import expire, expired
from tidegate.coordinator.namespace_owner import own
from tidegate.model.byte_size import size_text as size
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
from tidegate.store.base import Store, sound

HOME = click.option("--home", help="Directory of the installation (TIDEGATE_HOME).")
CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The engine's file; else TIDEGATE_CONFIG, tidegate.yaml of the home, defaults.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="For machines.")


@click.group(name="state")
def state() -> None:
    """What jobs have left on disk and in the store: how much it is, whether it is sound, what can
    go.

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
    """How much there is, by kind, age and job; and the store by map.

    \b
    live         of a job that has not ended
    retained     restore points of an ended job
    claimed      a restore is under way from it
    savepoint    stays until a person deletes it
    orphan       no record names it; `state gc` collects it
    quarantined  collected, and can be taken back
    unknown      not made by Tidegate; never touched
    """
    with installation(home, config) as here:
        rules = rules_of(here.settings.checkpoint, SystemClock().now_ms())
        usage = Usage()
        for verdict in Collector(here.storage.files, StoreWitness(here.store)).survey(rules):
            usage.add(verdict)
        names, sizes = names_of(here.store), here.store.size_by_map()
        warning = rules.quota.words(usage.total.bytes)
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
    help="Only show what would be collected. This is what happens unless --collect is given.",
)
@click.option(
    "--collect",
    is_flag=True,
    help="Move orphans into quarantine, and delete quarantines whose time is over.",
)
@click.option(
    "--older-than",
    type=click.IntRange(0),
    metavar="MINUTES",
    help="Orphans of this age, instead of checkpoint.orphan-ttl.",
)
@click.option(
    "--undo",
    metavar="ID",
    help="Take everything of a quarantine back to where it stood; `latest` is the newest.",
)
@click.option(
    "--purge",
    is_flag=True,
    help="Delete what is in quarantine now, without waiting for checkpoint.quarantine-delay.",
)
@click.option(
    "--take-namespace",
    is_flag=True,
    help="The store that this namespace belonged to is gone for good: it is this one's now.",
)
@AS_JSON
def gc(**options: Any) -> None:
    """Collect state that belongs to nobody. Without --collect, only show it.

    \b What is collected goes into quarantine first, and can be taken back for
    checkpoint.quarantine-delay. Never touched: jobs that the store knows, state that a restore is
    about to use, savepoints, files that Tidegate has not made. A server does the same by itself, by
    checkpoint.orphan-ttl. Exit code 1: something could not be moved or deleted; the rest was.
    """
    if options["dry_run"] and (options["collect"] or options["undo"] or options["purge"]):
        raise click.UsageError("--dry-run shows what would be done; leave it out to do it")
    with installation(options["home"], options["config"]) as here:
        now_ms = SystemClock().now_ms()
        older_ms = None if options["older_than"] is None else options["older_than"] * MINUTE_MS
        rules = rules_of(here.settings.checkpoint, now_ms, older_than_ms=older_ms)
        collector = Collector(here.storage.files, StoreWitness(here.store))
        if options["undo"]:
            code = undone(collector, options["undo"], now_ms)
        elif options["collect"] or options["purge"]:
            own(here.storage.files, here.store, take=options["take_namespace"])
            code = collected(here, collector, rules, options)
        else:
            code = shown(collector, rules, options["older_than"], options["as_json"])
    sys.exit(code)


def undone(collector: Collector, word: str, now_ms: int) -> int:
    moved, failed = collector.quarantines.take_back(collector.quarantines.find(word), now_ms)
    click.echo(f"{moved} units are where they stood")
    echo(failed, err=True)
    return exits.FAILED if failed else exits.FINISHED


def collected(
    here: LocalInstallation, collector: Collector, rules: CollectorSettings, options: dict[str, Any]
) -> int:
    """One pass that acts, and its report."""
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
    """What a pass did, in words."""
    yield (
        f"{report.moved} units ({size(report.moved_bytes)}) moved into quarantine, {report.deleted}"
        " deleted for good"
    )
    if report.put_back:
        yield f"{report.put_back} units put back: somebody came to want them"
    yield from (f"could not be done: {what}" for what in report.failed)
    if report.failures > len(report.failed):
        yield f"and {report.failures - len(report.failed)} more that could not be done"
    yield from quarantine_lines(collector.quarantines.all(), rules.delay_ms, rules.policy.now_ms)


def shown(
    collector: Collector, rules: CollectorSettings, older_than: int | None, as_json: bool
) -> int:
    """What would be collected, and what is not understood."""
    usage, more = Usage(), 0
    listed: list[UnitVerdict] = []
    for verdict in collector.survey(collector.plan(rules)):
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
        ("orphans whose time has not come", waiting),
        ("not made by Tidegate, never touched", unknown),
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
    """Check every document of the store, every byte of every checkpoint that it names, and every
    savepoint; exit code 1 if one is damaged or missing.
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
    """Each document of the store that is damaged."""
    for each in damaged_documents(here.store):
        yield {"kind": "document", "path": f"{each.map}/{each.key}", "damage": each.why}


@state.command()
@click.argument("what", metavar="JOB_ID|MAP/KEY")
@HOME
@CONFIG
def forget(what: str, home: str | None, config: Path | None) -> None:
    """Take damaged documents out of the store: those of a job, all together, or one that belongs to
    no job.

    Only what `tidegate state verify` names as damaged. Checkpoints, savepoints and rows of the job
    stay; resume it from them.

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
                f"{count} documents of job {what} are gone; its checkpoints stay: resume it with"
                " --restore latest"
            )
        elif slash:
            forget_document(here.store, map, key)
            click.echo(f"{what} is gone")
        else:
            raise UserError(
                f"{what!r} is neither the id of a job nor a document (MAP/KEY) as `tidegate state"
                " verify` names it"
            )


def checkpoint_rows(here: LocalInstallation) -> Iterable[dict[str, str]]:
    """Every checkpoint that a record names.

    One that is no longer named when it has been read was replaced meanwhile, and is left out.
    """
    for entry in here.store.list(PIPELINES):
        if damage_of(PIPELINES, entry):
            continue  # said already
        for ref in from_document(PipelineState, entry.value, f"pipeline {entry.key}").retained:
            damage = here.storage.damage(ref.path)
            if damage and not named_still(here.store, entry.key, ref.path):
                continue
            yield {"kind": "checkpoint", "path": ref.path, "damage": damage}


def named_still(store: Store, key: str, path: str) -> bool:
    """Whether a pipeline's record names a checkpoint at this moment."""
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
    help="Jobs that ended so long ago, instead of history-job-expire-minutes.",
)
@click.option("--dry-run", is_flag=True, help="Only show them.")
@AS_JSON
def expire_command(
    home: str | None, config: Path | None, older_than: int | None, dry_run: bool, as_json: bool
) -> None:
    """Forget ended jobs, as servers do by themselves: their outcome, figures and registry of
    checkpoints.

    Checkpoint and savepoint directories stay. Those checkpoints are orphans then; `tidegate state
    gc` collects them.
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
        f"{len(gone)} jobs {'would be ' if dry_run else ''}forgotten; their checkpoint and"
        " savepoint directories stay"
    )


def names_of(store: Store) -> dict[int, tuple[str, str]]:
    """Name and status of every job that the store remembers in any way."""
    names = {
        int(e.key): (str(e.value.get("name", "")), f"expired, was {e.value.get('status')}")
        for e in sound(store.list(EXPIRED_JOBS))
    }
    names |= {
        int(e.key): (str(e.value.get("name", "")), str(e.value.get("status", "")))
        for e in sound(store.list(JOB_OUTCOMES))
    }
    statuses = {
        int(e.key): JobStatus(e.value["status"]).value for e in sound(store.list(JOB_STATES))
    }
    names |= {
        int(e.key): (str(e.value.get("name", "")), statuses.get(int(e.key), ""))
        for e in sound(store.list(RUNNING_JOBS))
    }
    return names


def echo(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        click.echo(line, err=err)
