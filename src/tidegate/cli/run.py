"""`tidegate run`: one job, led from this process on the embedded store, until it ends. Composition root of an embedded run."""

import os
import secrets
import signal
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import click

from tidegate.checkpoints.open import open_storage
from tidegate.cli import exits, job_file, run_words
from tidegate.cli.display import Display, choose
from tidegate.cli.view import Rates, job_view
from tidegate.config.engine import load_engine
from tidegate.coordinator.claim import Claim, Claimant, StillAlive, Submission
from tidegate.coordinator.ending import Owned, end
from tidegate.coordinator.registry import Known, job_of_name
from tidegate.coordinator.supervisor import Launch, Supervisor
from tidegate.coordinator.wish import NeedsChoice, RestoreWish, Start
from tidegate.home import Home
from tidegate.logs import hide, log_to
from tidegate.model.document import from_document
from tidegate.model.engine import EngineSettings
from tidegate.model.errors import TidegateError, UserError, system_sentence
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.plan import Plan
from tidegate.model.problem import Severity
from tidegate.model.records import METRICS, JobOutcome, JobStatus, PipelineMetrics
from tidegate.pipeline.clock import SystemClock
from tidegate.plugin.secret import plan_texts
from tidegate.runner.java import JavaMissing, find_java
from tidegate.runner.launch import DriverProcess, Program, launch
from tidegate.runner.orders import driver_order
from tidegate.runner.process import reference
from tidegate.store.base import Store
from tidegate.store.open import open_store

DEFAULTS = EngineSettings()
EXIT_CODES = {
    JobStatus.FINISHED: exits.FINISHED,
    JobStatus.CANCELED: exits.CANCELED,
    JobStatus.SAVEPOINT_DONE: exits.CANCELED,
    JobStatus.FAILED: exits.FAILED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """What was said on the command line, besides the job file."""

    home: Home
    job_id: int | None
    name: str | None
    wish: RestoreWish
    as_json: bool
    another: bool = False  # a job of its own, whatever has run under its name
    settings: EngineSettings = DEFAULTS
    driver_module: str = "tidegate.driver"


@click.command()
@run_words.options
def run(said: run_words.Said) -> NoReturn:
    """Run one job to its end.

    \b
    Ctrl-C (or SIGTERM) stops at the next checkpoint, a second one at once.
    Exit code: 0 finished, 1 failed, 2 bad input, 3 refused, 130 cancelled or stopped with a savepoint.

    \b
    Examples:
      tidegate run job.conf
      tidegate run job.conf --restore auto       # for schedulers: goes on where the last run stopped
      tidegate run job.conf -i day=2024-05-01 --json
    """
    options = RunOptions(
        home=said.home,
        job_id=said.job_id,
        name=said.name,
        wish=said.restoring.wish,
        another=said.restoring.another,
        as_json=said.as_json,
        settings=settings_of(said.config, said.home),
    )
    planned = job_file.planned(said.file, said.variable, said.strict)
    try:
        find_java(os.environ)
    except JavaMissing as error:
        sys.exit(refuse(str(error), exits.FAILED))
    sys.exit(run_plan(planned, said.file, options))


def settings_of(config: Path | None, home: Home) -> EngineSettings:
    """The engine's settings in force. Problems go to stderr; with an error among them the command ends."""
    settings, _, problems = load_engine(config, os.environ, home=home)
    job_file.print_problems(problems, sys.stderr)
    if any(problem.severity is Severity.ERROR for problem in problems):
        sys.exit(refuse(f"{job_file.summary(problems)} in the engine's file; nothing was started", exits.BAD_INPUT))
    return settings


def run_plan(plan: Plan, file: str, options: RunOptions) -> int:
    """Claim the job, lead it, show it; the exit code."""
    url = options.settings.store_url or options.home.store_url
    try:
        if lost := options.home.lost_store(url):
            click.echo(f"tidegate: {lost}", err=True)
        options.home.make()
        store = open_store(url, compaction_threshold=options.settings.compaction_threshold)
    except (OSError, TidegateError) as error:
        why = system_sentence(error) if isinstance(error, OSError) else error
        return refuse(f"{options.home.root} cannot be used: {why}", exits.REFUSED)
    try:
        return EmbeddedRun(store, plan, file, options).run()
    except (StillAlive, NeedsChoice) as error:
        return refuse(str(error), exits.REFUSED)
    except UserError as error:
        return refuse(str(error), exits.BAD_INPUT)
    except TidegateError as error:
        return refuse(str(error), exits.FAILED)
    finally:
        store.close()


def refuse(text: str, code: int) -> int:
    """A sentence for the person, and the code for the machine."""
    click.echo(f"tidegate: {text}", err=True)
    return code


class EmbeddedRun:
    """One `tidegate run` from claim to summary."""

    def __init__(self, store: Store, plan: Plan, file: str, options: RunOptions) -> None:
        self.store, self.plan, self.file, self.options = store, plan, file, options
        self.clock = SystemClock()
        self.storage = open_storage(options.settings.checkpoint, options.home)
        self.claimant = Claimant(store, self.storage, options.home)
        self.me = reference(os.getpid())
        self.rates = Rates()
        self.started_s = self.clock.monotonic_s()

    def run(self) -> int:
        """Until the job has ended."""
        claim = self._claim(self.options.wish)
        logs = self.options.home.logs(claim.job.job_id)
        log_to(logs / "run.log")
        hide(plan_texts(claim.job.plan))
        if claim.start is Start.NOTHING:
            outcome = end(self.store, self.storage, Owned(claim.job.job_id, claim.generation), JobStatus.FINISHED, self.clock.now_ms())
            choose(as_json=self.options.as_json).end(outcome, 0, str(logs))
            return exits.FINISHED
        return EXIT_CODES[self._lead(claim, logs).status]

    def _claim(self, wish: RestoreWish) -> Claim:
        """Take the job up; asks the person at the terminal where a choice is needed."""
        name = self.options.name or self.plan.job_name
        known = None if self.options.another else job_of_name(self.store, name)
        job_id = self.options.job_id or known or new_job_id(self.clock.now_ms())
        submission = Submission(
            job_id=job_id, name=name, plan=self.plan, file=str(Path(self.file).absolute()), wish=wish, me=self.me, now_ms=self.clock.now_ms()
        )
        try:
            return self.claimant.claim(submission)
        except NeedsChoice as error:
            if self.options.as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            click.echo(str(error), err=True)
            said = RestoreWish.parse(click.prompt("restore", default="latest", err=True))
            return self._claim(replace(wish, start=said.start, checkpoint=said.checkpoint, where=said.where))

    def _lead(self, claim: Claim, logs: Path) -> JobOutcome:
        program = Program(environ=dict(os.environ), module=self.options.driver_module)
        order = driver_order(self.options.settings, self.options.home, job_id=claim.job.job_id, generation=claim.generation)
        supervisor = Supervisor(
            self.claimant, claim, self.me, Launch(lambda order: launch(order, program), order), self.clock, self.options.settings.checkpoint
        )
        display = choose(as_json=self.options.as_json)
        readers: list[threading.Thread] = []
        try:
            self._announce(claim, display)
            handle_signals(supervisor, display)
            supervisor.start(lambda driver: readers.append(relay(driver, display)))
            outcome = supervisor.watch(lambda known: self._show(known, claim, display))
            for reader in readers:
                reader.join()
            display.end(outcome, self.clock.monotonic_s() - self.started_s, str(logs))
            return outcome
        finally:
            if supervisor.driver:
                supervisor.driver.kill()
            for reader in readers:
                reader.join()
            display.close()

    def _announce(self, claim: Claim, display: Display) -> None:
        for note in claim.notes:
            display.note(note)
        if claim.job.fork:
            display.note(f"job {claim.job.source_job} goes on running: this is a fork with a lineage of its own")
        if claim.start is Start.RESUME:
            places = ", ".join(f"pipeline {p} after checkpoint {c}" if c else f"pipeline {p} from its beginning" for p, c in claim.restored.items())
            display.note(f"job {claim.job.name!r} ({claim.job.job_id}) goes on: {places}")
        else:
            display.note(f"job {claim.job.name!r} ({claim.job.job_id}) starts")

    def _show(self, known: Known, claim: Claim, display: Display) -> None:
        metrics = {
            m.pipeline: m
            for entry in self.store.list(METRICS, f"{known.job_id}/")
            if (m := from_document(PipelineMetrics, entry.value)).generation == (known.state.value.generation if known.state else 0)
        }
        display.update(
            job_view(
                known,
                metrics,
                self.rates,
                name=claim.job.name,
                started_s=self.started_s,
                now_s=self.clock.monotonic_s(),
                now_ms=self.clock.now_ms(),
            )
        )


def relay(driver: DriverProcess, display: Display) -> threading.Thread:
    """Show what the driver prints, line by line."""

    def read() -> None:
        for line in driver.output:
            display.row(line.decode(errors="replace").rstrip("\n"))
        driver.close()

    thread = threading.Thread(target=read, name="driver-output", daemon=True)
    thread.start()
    return thread


def handle_signals(supervisor: Supervisor, display: Display) -> None:
    """Ctrl-C and SIGTERM: first ask, then kill."""

    def handle(*_: object) -> None:
        if supervisor.stopping():
            supervisor.kill()
        else:
            supervisor.ask()
            threading.Thread(target=display.note, args=("stopping at the next checkpoint; once more to stop at once",), daemon=True).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)


def new_job_id(now_ms: int) -> int:
    """64 bits: milliseconds and chance; ids that people see sort by time."""
    return ((now_ms << 20) | secrets.randbits(20)) & JOB_ID_MAX
