"""Decisions after a driver ended or stalled. Called by the states in which a driver runs.

A restart counts against the budget if the job, or a system that it uses, is to blame: a driver that
died, did not start or stalled. It does not count if the driver was ended in good order from outside
(a host that shuts down), or if the worker was lost before there was a driver.
"""

from tidegate.lifecycle.decision import Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.retry import Exhausted, has_progressed, next_retry
from tidegate.lifecycle.stopping import target_worker
from tidegate.model.records import DriverCommand, DriverEnd, Failure, JobStatus, PipelineStatus


def after_driver_end(view: JobObservation, proof: str = "") -> Transition:
    """Decide by the status of the pipelines: the driver is dead, and no command ended it."""
    match view.outcome:
        case PipelineStatus.FINISHED:
            return Transition(to=JobStatus.FINISHED, proof=proof)
        case PipelineStatus.FAILED:
            return fail(view, pipeline_failure(view), command=DriverCommand.KILL, proof=proof)
        case PipelineStatus.CANCELED:
            return resume(view, proof=proof)
        case _:
            return restart(view, driver_died(view, proof), proof=proof)


def resume(view: JobObservation, *, proof: str = "") -> Transition:
    """Restart without counting: every pipeline stopped at a checkpoint without a command.

    The driver was stopped from outside.
    """
    reason = (
        "the driver was stopped, but not by a command: the job resumes from its last checkpoint"
    )
    return Transition(
        to=JobStatus.RECOVERING,
        command=DriverCommand.KILL,
        reason=reason,
        healed=_progressed(view),
        proof=proof,
    )


def reassign(view: JobObservation, reason: str) -> Transition:
    """Choose another worker without counting a restart.

    The worker was lost before it had a driver. A process that it may have started is rejected when
    it registers.
    """
    failure = Failure(
        at_ms=view.now_ms,
        generation=view.state.generation,
        condition="worker-lost",
        domain="external",
        message=reason,
    )
    return Transition(
        to=JobStatus.RECOVERING, command=DriverCommand.KILL, reason=reason, failure=failure
    )


def restart(view: JobObservation, failure: Failure, *, proof: str = "") -> Transition:
    """Decide on RECOVERING within the budget, FAILING beyond it.

    In both cases remaining processes of the driver are killed.
    """
    retry = next_retry(
        restarts=view.state.restarts,
        times=view.record.plan.env.retry_times,
        progressed=_progressed(view),
    )
    if isinstance(retry, Exhausted):
        spent = (
            f"all {retry.times} restarts were used without progress"
            if retry.times
            else "job.retry.times is 0"
        )
        return fail(
            view,
            failure,
            command=DriverCommand.KILL,
            reason=f"{failure.message}; {spent}",
            proof=proof,
        )
    return Transition(
        to=JobStatus.RECOVERING,
        command=DriverCommand.KILL,
        reason=failure.message,
        failure=failure,
        restart=True,
        healed=retry.healed,
        proof=proof,
    )


def fail(
    view: JobObservation,
    failure: Failure | None,
    *,
    command: DriverCommand,
    reason: str = "",
    proof: str = "",
) -> Transition:
    """Decide on FAILING, with a reason for users."""
    why = reason or (failure.message if failure else "")
    return Transition(
        to=JobStatus.FAILING,
        command=command,
        worker=target_worker(view),
        reason=why,
        failure=failure,
        proof=proof,
    )


def pipeline_failure(view: JobObservation) -> Failure | None:
    """Return the error of the first pipeline that has failed."""
    return next(
        (p.error for p in view.pipelines if p.status is PipelineStatus.FAILED and p.error), None
    )


def driver_died(view: JobObservation, proof: str = "") -> Failure:
    """Describe the end of the driver as a failure."""
    end = view.driver.end if view.driver and view.has_driver else None
    condition = "driver-lost" if proof or end is None else "driver-died"
    return Failure(
        at_ms=view.now_ms,
        generation=view.state.generation,
        condition=condition,
        domain="external",
        message=_describe_death(view, end),
    )


def _describe_death(view: JobObservation, end: DriverEnd | None) -> str:
    if view.driver is None or not view.has_driver:
        return "the driver no longer has a record"
    if end is None:
        return (
            f"no heartbeat from the driver (process {view.driver.process.pid} on"
            f" {view.driver.process.host}), nor from a worker that could see it"
        )
    stderr_tail = f": {end.stderr_tail}" if end.stderr_tail else ""
    return f"the driver died ({_exit(end)}){stderr_tail}"


def _exit(end: DriverEnd) -> str:
    if end.code is None:
        return end.proof or "exit code unknown"
    return f"signal {-end.code}" if end.code < 0 else f"exit code {end.code}"


def _progressed(view: JobObservation) -> bool:
    return has_progressed(view.driver, view.state.generation, view.pipelines)
