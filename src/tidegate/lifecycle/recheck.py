"""Which jobs get on by themselves, and how long they may be left alone. Pure; called by the
reconciler after each look at a job.

A calm job runs under the eyes of its worker, makes progress, and nobody wants anything of it.
Whatever ends that is a change of its records, which is looked at at once, or a progress that does
not come: so it is enough to look again within a part of the time after which it would be late.
"""

from tidegate.lifecycle.decision import Decision, NoTransition
from tidegate.lifecycle.health import STARTING_PHASES, ProgressPolicy
from tidegate.lifecycle.observation import JobObservation
from tidegate.model.records import CheckpointHealth, JobStatus, PipelineMetrics, PipelineState

PART = 4  # of the time after which it would be late
AS_IT_IS = NoTransition()


def is_stable(view: JobObservation, decision: Decision) -> bool:
    """Whether only a change, or the lack of any, can call for something else.

    One that is led by `tidegate run` never is: that process is looked for.
    """
    return (
        view.state.status is JobStatus.RUNNING
        and decision == AS_IT_IS
        and view.health.level is CheckpointHealth.OK
        and view.state.leader is None
        and not view.saving
        and view.outcome is None
    )


def recheck_after_ms(rhythm: ProgressPolicy) -> int:
    """How long a calm job may be left alone."""
    return rhythm.late_ms // PART


def state_mark(state: PipelineState) -> object:
    """What of a pipeline's record calls for a look at once when it is another one; the rest is its
    progress.
    """
    return state.status, state.generation, state.error


def figures_mark(metrics: PipelineMetrics) -> object:
    """The same of its figures."""
    return (
        metrics.generation,
        metrics.phase in STARTING_PHASES,
        tuple((each.source, each.level) for each in metrics.log_retention)
        if metrics.log_retention
        else (),
    )
