"""Which jobs need no attention, and for how long.

Pure; called by the reconciler after each decision. A stable job runs under the supervision of its
worker, makes progress, and no command is pending. What ends that is a change of its records, which
is handled at once, or missing progress: so it is enough to check it again within a share of the
time after which it would be late.
"""

from tidegate.lifecycle.decision import Decision, NoTransition
from tidegate.lifecycle.health import STARTING_PHASES, ProgressPolicy
from tidegate.lifecycle.observation import JobObservation
from tidegate.model.records import CheckpointHealth, JobStatus, PipelineMetrics, PipelineState

LATE_SHARE = 4  # a stable job is rechecked this often before it would be late
UNCHANGED = NoTransition()


def is_stable(view: JobObservation, decision: Decision) -> bool:
    """Whether only a change, or the lack of any, can require another decision.

    A job that `tidegate run` leads is never stable: its process is checked every time.
    """
    return (
        view.state.status is JobStatus.RUNNING
        and decision == UNCHANGED
        and view.health.level is CheckpointHealth.OK
        and view.state.leader is None
        and not view.savepoint_wanted
        and view.outcome is None
    )


def recheck_after_ms(policy: ProgressPolicy) -> int:
    """Return how long a stable job may stay unchecked."""
    return policy.late_ms // LATE_SHARE


def state_marker(state: PipelineState) -> object:
    """The part of a pipeline's record whose change needs a check; the rest is progress."""
    return state.status, state.generation, state.error


def metrics_marker(metrics: PipelineMetrics) -> object:
    """The part of a pipeline's metrics whose change needs a check at once."""
    return (
        metrics.generation,
        metrics.phase in STARTING_PHASES,
        tuple((each.source, each.level) for each in metrics.log_retention)
        if metrics.log_retention
        else (),
    )
