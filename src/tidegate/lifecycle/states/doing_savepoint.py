"""DOING_SAVEPOINT: the driver is asked to end with a savepoint. Whatever goes wrong keeps every checkpoint: FAILED can be resumed, while CANCELED may
have been told to keep nothing."""

from tidegate.lifecycle.deadline import Deadline
from tidegate.lifecycle.decision import Decision, Go, Stay
from tidegate.lifecycle.recovery import after_end, fail, pipeline_failure, restart
from tidegate.lifecycle.states.running import stalled
from tidegate.lifecycle.stopping import Gone, first_order, hand, life, stronger
from tidegate.lifecycle.view import JobView, Watcher
from tidegate.model.records import CheckpointHealth, CheckpointKind, Failure, JobStatus, Order, PipelineStatus

NAME = JobStatus.DOING_SAVEPOINT
GOES_TO = frozenset({JobStatus.SAVEPOINT_DONE, JobStatus.FINISHED, JobStatus.FAILING, JobStatus.RECOVERING, JobStatus.CANCELING})
DEADLINE: Deadline | None = Deadline(
    ms=lambda limits: limits.savepoint_ms, then=frozenset({JobStatus.FAILING}), what="until every pipeline has ended with a savepoint; all checkpoints are kept"
)


def decide(view: JobView) -> Decision:
    """Done when the driver has ended and every pipeline's newest checkpoint is a savepoint of this generation."""
    gone = life(view)
    if isinstance(gone, Gone) and view.outcome is PipelineStatus.FINISHED:
        return after_end(view, gone.proof)
    if view.stop_wanted:
        return Go(to=JobStatus.CANCELING, order=first_order(view), worker=hand(view))
    if isinstance(gone, Gone):
        return _ended(view, gone.proof)
    if view.outcome is PipelineStatus.FAILED:
        return fail(view, pipeline_failure(view), order=Order.STOP)
    if view.health.level is CheckpointHealth.STALLED:
        return restart(view, stalled(view))
    if view.state_age_ms >= view.limits.savepoint_ms:
        return fail(view, _none(view, f"there was no savepoint within {view.limits.savepoint_ms // 1000} s"), order=Order.STOP)
    return Stay(order=stronger(Order.STOP, view.standing), worker=view.adopter if view.watcher is Watcher.REPLACEABLE else hand(view))


def _ended(view: JobView, proof: str) -> Go:
    if view.outcome is not PipelineStatus.CANCELED:
        return after_end(view, proof)
    if all(p.status is PipelineStatus.FINISHED or _saved(view, p.pipeline) for p in view.pipelines):
        return Go(to=JobStatus.SAVEPOINT_DONE, proof=proof)
    return fail(view, _none(view, "the driver ended without a savepoint"), order=Order.KILL, proof=proof)


def _saved(view: JobView, pipeline: int) -> bool:
    latest = next((p.latest for p in view.pipelines if p.pipeline == pipeline), None)
    return latest is not None and latest.kind is CheckpointKind.SAVEPOINT and latest.generation == view.state.generation


def _none(view: JobView, message: str) -> Failure:
    return Failure(at_ms=view.now_ms, generation=view.state.generation, condition="no-savepoint", message=message)
