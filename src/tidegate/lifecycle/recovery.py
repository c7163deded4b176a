"""What follows from the end of a driver, or from its being stuck: called by the states in which a
driver runs. Decides, and acts on nothing.

A restart counts against the budget when the job, or what it works with, is to blame: a driver that
died, did not start or stalled. It does not count when somebody ended the driver in good order (a
host that is shut down), or when the worker was lost before there was a driver.
"""

from tidegate.lifecycle.decision import Transition
from tidegate.lifecycle.observation import JobObservation
from tidegate.lifecycle.retry import Exhausted, got_on, next_retry
from tidegate.lifecycle.stopping import target_worker
from tidegate.model.records import DriverCommand, DriverEnd, Failure, JobStatus, PipelineStatus


def after_end(view: JobObservation, proof: str = "") -> Transition:
    """The driver is gone, and nobody wanted it to end: by what its pipelines say."""
    match view.outcome:
        case PipelineStatus.FINISHED:
            return Transition(to=JobStatus.FINISHED, proof=proof)
        case PipelineStatus.FAILED:
            return fail(view, pipeline_failure(view), order=DriverCommand.KILL, proof=proof)
        case PipelineStatus.CANCELED:
            return resume(view, proof=proof)
        case _:
            return restart(view, driver_died(view, proof), proof=proof)


def resume(view: JobObservation, *, proof: str = "") -> Transition:
    """Every pipeline stopped at a checkpoint although nobody asked for that here: the driver was
    told to end from outside. It goes on, at no cost.
    """
    reason = (
        "the driver was told to end, but not by a command: the job goes on from its last checkpoint"
    )
    return Transition(
        to=JobStatus.RECOVERING,
        order=DriverCommand.KILL,
        reason=reason,
        healed=_got_on(view),
        proof=proof,
    )


def elsewhere(view: JobObservation, reason: str) -> Transition:
    """The worker was lost before there was a driver: another one, at no cost.

    A process that it may have started is refused when it registers.
    """
    failure = Failure(
        at_ms=view.now_ms,
        generation=view.state.generation,
        condition="worker-lost",
        domain="external",
        message=reason,
    )
    return Transition(
        to=JobStatus.RECOVERING, order=DriverCommand.KILL, reason=reason, failure=failure
    )


def restart(view: JobObservation, failure: Failure, *, proof: str = "") -> Transition:
    """RECOVERING within the budget, FAILING beyond it.

    Either way what is left of the driver is killed.
    """
    retry = next_retry(
        restarts=view.state.restarts, times=view.record.plan.env.retry_times, got_on=_got_on(view)
    )
    if isinstance(retry, Exhausted):
        spent = (
            f"all {retry.times} restarts without progress are used up"
            if retry.times
            else "job.retry.times is 0"
        )
        return fail(
            view,
            failure,
            order=DriverCommand.KILL,
            reason=f"{failure.message}; {spent}",
            proof=proof,
        )
    return Transition(
        to=JobStatus.RECOVERING,
        order=DriverCommand.KILL,
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
    order: DriverCommand,
    reason: str = "",
    proof: str = "",
) -> Transition:
    """FAILING, with the reason for people."""
    why = reason or (failure.message if failure else "")
    return Transition(
        to=JobStatus.FAILING,
        order=order,
        worker=target_worker(view),
        reason=why,
        failure=failure,
        proof=proof,
    )


def pipeline_failure(view: JobObservation) -> Failure | None:
    """The error of the first pipeline that has failed."""
    return next(
        (p.error for p in view.pipelines if p.status is PipelineStatus.FAILED and p.error), None
    )


def driver_died(view: JobObservation, proof: str = "") -> Failure:
    """The end of the driver as a failure."""
    end = view.driver.end if view.driver and view.driven else None
    condition = "driver-lost" if proof or end is None else "driver-died"
    return Failure(
        at_ms=view.now_ms,
        generation=view.state.generation,
        condition=condition,
        domain="external",
        message=_how(view, end),
    )


def _how(view: JobObservation, end: DriverEnd | None) -> str:
    if view.driver is None or not view.driven:
        return "the driver has no record any more"
    if end is None:
        return (
            f"nothing is heard of the driver (process {view.driver.process.pid} on"
            f" {view.driver.process.host}), nor of a worker that could see it"
        )
    words = f": {end.stderr_tail}" if end.stderr_tail else ""
    return f"the driver died ({_exit(end)}){words}"


def _exit(end: DriverEnd) -> str:
    if end.code is None:
        return end.proof or "nobody saw how"
    return f"signal {-end.code}" if end.code < 0 else f"exit code {end.code}"


def _got_on(view: JobObservation) -> bool:
    return got_on(view.driver, view.state.generation, view.pipelines)
