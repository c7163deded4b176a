"""`tidegate run`: runs one job to its end, with this process as its leader.

Composition root of an embedded run.
"""

import contextlib
import os
import secrets
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import click

from tidegate.checkpoints.open import open_storage
from tidegate.cli import exits, job_file, output, run_options, signals
from tidegate.cli.display import Display, JsonDisplay, PlainDisplay, choose_display
from tidegate.cli.job_display import job_view
from tidegate.clock import SystemClock
from tidegate.config.engine.settings import load_engine
from tidegate.coordinator.accepted_changes import table_stops
from tidegate.coordinator.claim import Claim, Claimant, Submission
from tidegate.coordinator.driver_stop import DriverStop
from tidegate.coordinator.job_snapshot import JobSnapshot, job_of_name, read_job
from tidegate.coordinator.restore.options import NeedsChoice, RestoreOptions, StartMode
from tidegate.coordinator.restore.sink_checks import ask_recorded
from tidegate.coordinator.supervisor import DriverLaunch, Supervisor
from tidegate.coordinator.terminal_transaction import OwnedGeneration, end_job
from tidegate.home import Home
from tidegate.lifecycle.observation import LifecycleLimits
from tidegate.logs import log_to
from tidegate.model.document import from_document
from tidegate.model.engine import CoordinatorSettings, EngineSettings
from tidegate.model.errors import TidegateError, describe_os_error
from tidegate.model.ids import JOB_ID_MAX
from tidegate.model.plan import Plan
from tidegate.model.problem import Severity
from tidegate.model.records import METRICS, DriverCommand, JobOutcome, JobStatus, PipelineMetrics
from tidegate.model.table_changes import ChangeStop
from tidegate.plugin.secret import plan_texts
from tidegate.redact import redact, register_secrets
from tidegate.runner.driver_spec import driver_spec
from tidegate.runner.java import JavaMissing, SparkMissing, check_spark, find_java
from tidegate.runner.launch import DriverProcess, Program, launch
from tidegate.runner.process import process_ref
from tidegate.store.base import Store
from tidegate.store.errors import StoreUnavailable
from tidegate.store.open import open_store

DEFAULTS = EngineSettings()
STOP_TIMEOUT_S = (
    10.0  # once the driver is gone, or there was none: until the end of a stop is recorded
)
STOP_TIMEOUT_AGAIN_S = 1.0  # after a second signal
POLL_S = 0.1
EXIT_CODES = {
    JobStatus.FINISHED: exits.FINISHED,
    JobStatus.CANCELED: exits.CANCELED,
    JobStatus.SAVEPOINT_DONE: exits.CANCELED,
    JobStatus.FAILED: exits.FAILED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """The options of the command line, except for the job file."""

    home: Home
    job_id: int | None
    name: str | None
    options: RestoreOptions
    as_json: bool
    new_job: bool = False  # even if a job of this name has run
    command: str = "tidegate run"  # runs the same job again
    settings: EngineSettings = DEFAULTS
    driver_module: str = "tidegate.driver"


@click.command()
@run_options.options
def run(arguments: run_options.RunArguments) -> NoReturn:
    """Run one job to its end.

    \b
    Ctrl-C (or SIGTERM, SIGHUP, `tidegate stop`) stops the job at the next checkpoint, a second
    signal at once. A reader of the output that exits (`| head`) stops it too.
    Exit code: 0 finished, 1 failed, 2 bad input, 3 refused, 130 cancelled or stopped with a
    savepoint, 141 nobody reads the output.

    \b
    Examples:
      tidegate run job.conf
      tidegate run job.conf --restore auto    # for schedulers: resumes where the last run stopped
      tidegate run job.conf -i day=2024-05-01 --json
    """
    options = RunOptions(
        home=arguments.home,
        job_id=arguments.job_id,
        name=arguments.name,
        options=arguments.restoring.options,
        new_job=arguments.restoring.new_job,
        as_json=arguments.as_json,
        settings=settings_of(arguments.config, arguments.home),
        command=run_options.command_line(arguments, os.environ),
    )
    planned = job_file.load_plan(arguments.file, arguments.variable, arguments.strict, here=True)
    try:
        check_spark()
        find_java(os.environ)
    except (SparkMissing, JavaMissing) as error:
        sys.exit(print_error(str(error), exits.FAILED))
    sys.exit(run_plan(planned, arguments.file, options))


def settings_of(config: Path | None, home: Home) -> EngineSettings:
    """Load the engine's settings.

    Problems go to stderr; an error ends the command.
    """
    settings, _, problems = load_engine(config, os.environ, home=home)
    job_file.print_problems(problems, sys.stderr)
    if any(problem.severity is Severity.ERROR for problem in problems):
        sys.exit(
            print_error(
                f"{job_file.summary(problems)} in the engine's file; nothing was started",
                exits.BAD_INPUT,
            )
        )
    return settings


def run_plan(plan: Plan, file: str, options: RunOptions) -> int:
    """Open the store and run the job; return the exit code."""
    url = options.settings.store_url or options.home.store_url
    try:
        if lost := options.home.lost_store_warning(url):
            click.echo(f"tidegate: {lost}", err=True)
        options.home.create()
        store = open_store(url, compaction_threshold=options.settings.compaction_threshold)
    except (OSError, TidegateError) as error:
        why = describe_os_error(error) if isinstance(error, OSError) else error
        return print_error(f"{options.home.root} cannot be used: {why}", exits.REFUSED)
    try:
        return run_stored(store, plan, file, options)
    finally:
        store.close()


def run_stored(store: Store, plan: Plan, file: str, options: RunOptions) -> int:
    """Run the job on an open store; return the exit code."""
    try:
        return EmbeddedRun(store, plan, file, options).run()
    except TidegateError as error:
        return print_error(str(error), exits.code_of(error))


def print_error(text: str, code: int) -> int:
    """Print an error message, and return the exit code."""
    click.echo(f"tidegate: {text}", err=True)
    return code


class EmbeddedRun:
    """One `tidegate run` from claim to summary."""

    def __init__(self, store: Store, plan: Plan, file: str, options: RunOptions) -> None:
        self.store = store
        self.plan = plan
        self.file = file
        self.options = options
        self.clock = SystemClock()
        self.storage = open_storage(options.settings.checkpoint, options.home)
        self.claimant = Claimant(store, self.storage, options.home)
        self.me = process_ref(os.getpid())
        self.warned: list[str] = []
        self.started_s = self.clock.monotonic_s()
        self.stop = DriverStop(limits_of(options.settings.coordinator), self.clock)
        self.ended = threading.Event()
        self.prompting = False  # whether the user is being prompted
        self.code = exits.CANCELED  # the exit code after a stop
        self.output_lost = False
        self.signals = 0
        self.supervisor: Supervisor | None = None
        self.display: Display = (
            JsonDisplay(self._output_failed)
            if options.as_json
            else PlainDisplay(self._output_failed)
        )

    def run(self) -> int:
        """Run until the job has ended; return the exit code."""
        threading.Thread(target=self._watch_end, name="stop-watch", daemon=True).start()
        try:
            with signals.handle_stop_signals(self._signaled):
                return self._run()
        finally:
            self.ended.set()
            self.display.close()

    def _run(self) -> int:
        claim = self._claim(self.options.options)
        logs = self.options.home.logs(claim.job.job_id)
        log_to(logs / "run.log")
        register_secrets(plan_texts(claim.job.plan))
        if claim.start is StartMode.NOTHING:
            outcome = end_job(
                self.store,
                self.storage,
                OwnedGeneration(claim.job.job_id, claim.generation),
                JobStatus.FINISHED,
                self.clock.now_ms(),
            )
            self.display.end(outcome, 0, str(logs))
            return exits.FINISHED
        return self._code_of(self._lead(claim, logs))

    def _code_of(self, outcome: JobOutcome) -> int:
        """Return the exit code of an outcome.

        A job that finished, but whose output was lost, is no success.
        """
        unread = outcome.status is JobStatus.FINISHED and self.output_lost
        return (
            self.code
            if unread or outcome.status is JobStatus.CANCELED
            else EXIT_CODES[outcome.status]
        )

    def _signaled(self, number: signal.Signals) -> None:
        """Request a stop on the first signal, kill on the second; called by the signal thread."""
        self.signals += 1
        if self.prompting:  # nothing has started
            self._give_up("stopped")
        elif self.stop.request(DriverCommand.STOP, f"stopped by {number.name}"):
            self.display.note("stopping at the next checkpoint; repeat to stop at once")
        else:
            self.stop.request(DriverCommand.KILL, "")

    def _output_failed(self, error: OSError) -> None:
        """Interrupt the job because its output cannot be written. Thread-safe.

        The running batch is abandoned, because it would write more output.
        """
        why = output.describe(error)
        if self.stop.request(DriverCommand.INTERRUPT, why) and self.stop.reason == why:
            self.code = output.exit_code(error)
            self.output_lost = True
            self.display.note(f"stopping: {why}")

    def _watch_end(self) -> None:
        """Enforce a stop even if the store does not answer or the job is still being claimed.

        The next run finds the same state as after a kill, and resumes the job.
        """
        idle_since_s = None
        while not self.ended.wait(POLL_S):
            driver = self.supervisor.driver if self.supervisor else None
            if not self.stop.requested.is_set() or (driver is not None and driver.poll() is None):
                continue
            now_s = self.clock.monotonic_s()
            idle_since_s = now_s if idle_since_s is None else idle_since_s
            if now_s - idle_since_s > (
                STOP_TIMEOUT_S if self.signals < 2 else STOP_TIMEOUT_AGAIN_S
            ):
                self._give_up(
                    "stopped, and the end could not be recorded: the store or the checkpoint"
                    " storage does not answer. --restore auto resumes the job"
                )

    def _give_up(self, why: str) -> NoReturn:
        with contextlib.suppress(Exception):  # the process exits even if the terminal fails
            self.display.close()
            self.display.note(f"tidegate: {why}")
        os._exit(self.code)

    def _claim(self, options: RestoreOptions) -> Claim:
        """Claim the job; prompt the user if a restore choice is needed."""
        name = self.options.name or self.plan.job_name
        snapshot = None if self.options.new_job else job_of_name(self.store, name)
        job_id = self.options.job_id or snapshot or new_job_id(self.clock.now_ms())
        submission = Submission(
            job_id=job_id,
            name=name,
            plan=self.plan,
            file=str(Path(self.file).absolute()),
            options=options,
            me=self.me,
            now_ms=self.clock.now_ms(),
            ask_sink=ask_recorded,
        )
        try:
            return self.claimant.claim(submission)
        except NeedsChoice as error:
            if self.options.as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            click.echo(str(error), err=True)
            self.prompting = True
            chosen = RestoreOptions.parse(click.prompt("restore", default="auto", err=True))
            self.prompting = False
            return self._claim(
                replace(
                    options,
                    start=chosen.start,
                    checkpoint=chosen.checkpoint,
                    location=chosen.location,
                )
            )

    def _lead(self, claim: Claim, logs: Path) -> JobOutcome:
        program = Program(environ=dict(os.environ), module=self.options.driver_module)
        spec = driver_spec(
            self.options.settings,
            self.options.home,
            job_id=claim.job.job_id,
            generation=claim.generation,
        )
        started = DriverLaunch(lambda order: launch(order, program), spec)
        self.supervisor = supervisor = Supervisor(
            self.claimant,
            claim,
            self.me,
            started,
            self.clock,
            self.options.settings.checkpoint,
            self.stop,
        )
        self.display = display = choose_display(
            as_json=self.options.as_json, on_lost=self._output_failed
        )
        readers: list[threading.Thread] = []
        try:
            self._announce(claim, display)
            supervisor.start(lambda driver: readers.append(relay(driver, display)))
            outcome = supervisor.watch(lambda snapshot: self._show(snapshot, claim, display))
            for reader in readers:
                reader.join()
            display.end(
                outcome, self.clock.monotonic_s() - self.started_s, str(logs), self._advice(outcome)
            )
            return outcome
        finally:
            if supervisor.driver:
                supervisor.driver.kill()
            for reader in readers:
                reader.join()

    def _advice(self, outcome: JobOutcome) -> str:
        """Return the command that runs this job again.

        Empty if the job has finished, or the store does not answer.
        """
        if outcome.status is JobStatus.FINISHED:
            return ""
        try:
            points = read_job(self.store, outcome.job_id).restore_points
        except StoreUnavailable:
            return ""
        command = redact(self.options.command)
        if not points:
            return f"there is no checkpoint; start again with: {command} --restore auto"
        if stops := table_stops(outcome):
            if all(stop.choices for stop in stops):
                return decision_commands(stops, str(outcome.job_id), self.options.home)
            return f"start again with: {command} --restore fresh"
        places = ", ".join(
            f"{checkpoint} of pipeline {pipeline}" for pipeline, checkpoint in points.items()
        )
        place = places if len(points) > 1 else str(next(iter(points.values())))
        return f"continue after checkpoint {place} with: {command} --restore latest"

    def _announce(self, claim: Claim, display: Display) -> None:
        for note in claim.notes:
            display.note(note)
        if claim.job.fork:
            display.note(
                f"job {claim.job.source_job} keeps running: this is a fork with its own lineage"
            )
        if claim.start is StartMode.RESUME:
            places = ", ".join(
                f"pipeline {p} after checkpoint {c}" if c else f"pipeline {p} from its beginning"
                for p, c in claim.restored.items()
            )
            display.note(f"job {claim.job.name!r} ({claim.job.job_id}) resumes: {places}")
        else:
            display.note(f"job {claim.job.name!r} ({claim.job.job_id}) starts")

    def _show(self, snapshot: JobSnapshot, claim: Claim, display: Display) -> None:
        for warning in [
            text
            for each in snapshot.pipelines
            for text in each.value.warnings
            if text not in self.warned
        ]:
            display.note(f"warning: {warning}")
            self.warned.append(warning)
        metrics = {
            m.pipeline: m
            for entry in self.store.list(METRICS, f"{snapshot.job_id}/")
            if (m := from_document(PipelineMetrics, entry.value)).generation
            == (snapshot.state.value.generation if snapshot.state else 0)
        }
        display.update(
            job_view(
                snapshot,
                metrics,
                name=claim.job.name,
                started_s=self.started_s,
                now_s=self.clock.monotonic_s(),
                now_ms=self.clock.now_ms(),
            )
        )


def decision_commands(stops: Sequence[ChangeStop], job: str, home: Home) -> str:
    """Return the commands that decide about table changes in this installation."""
    home_option = (
        "" if home == Home.find(None, os.environ) else f" --home {shlex.quote(str(home.root))}"
    )
    commands = [
        f"{stop.command(job)} {choice.value}{home_option}"
        for stop in stops
        for choice in stop.choices
    ]
    return "choose how to continue with one of:\n  " + "\n  ".join(commands)


def limits_of(settings: CoordinatorSettings) -> LifecycleLimits:
    """Return the deadlines of a stop: those of servers, limited by the configured timeout."""
    each_ms, usual = settings.stop_timeout_ms, LifecycleLimits()
    return replace(
        usual,
        stop_ms=each_ms,
        interrupt_ms=min(usual.interrupt_ms, each_ms),
        terminate_ms=min(usual.terminate_ms, each_ms),
    )


def relay(driver: DriverProcess, display: Display) -> threading.Thread:
    """Start a thread that shows the driver's output line by line."""

    def read() -> None:
        for line in driver.output:
            display.row(line.decode(errors="replace").rstrip("\n"))
        driver.close()

    thread = threading.Thread(target=read, name="driver-output", daemon=True)
    thread.start()
    return thread


def new_job_id(now_ms: int) -> int:
    """Make an id of 64 bits from milliseconds and random bits, so that ids sort by time."""
    return ((now_ms << 20) | secrets.randbits(20)) & JOB_ID_MAX
