"""The random job of a simulated run: one or two pipelines of one to three sources and one or two
sinks. Called by sim_run.
"""

import random

from tidegate.model.job import BlockKind, JobEnv, JobMode
from tidegate.model.plan import Action, Delivery, PipelinePlan, Plan


def drawn_plan(rng: random.Random) -> Plan:
    """Draw a plan with small batches and few retries, so that a run is short."""
    streaming = rng.random() < 0.3
    env = JobEnv(
        mode=JobMode.STREAMING if streaming else JobMode.BATCH,
        retry_times=rng.choice([0, 2, 5]),
        retry_interval_s=1,
        checkpoint_interval_ms=1000,
        checkpoints_retained_max=rng.choice([1, 2, 3, 4]),
        batch_rows_max=rng.choice([3, 5, 10]),
    )
    return Plan(
        job_name="sim",
        env=env,
        pipelines=tuple(_drawn_pipeline(rng, n) for n in range(1, rng.choice([1, 1, 2]) + 1)),
    )


def _drawn_pipeline(rng: random.Random, number: int) -> PipelinePlan:
    names = [f"Source[{number}{n}]" for n in range(rng.choice([1, 1, 3]))]
    sources = [
        Action(
            operator=name,
            label=name,
            kind=BlockKind.SOURCE,
            plugin="SimSource",
            options={"base": number * 1_000_000 + n * 100_000, "rows": rng.randint(5, 30)},
            fusable=True,
        )
        for n, name in enumerate(names)
    ]
    newest_only = rng.random() < 0.3
    sinks = [
        Action(
            operator=name,
            label=name,
            kind=BlockKind.SINK,
            plugin="SimSink",
            options={"newest_only": newest_only},
            inputs=tuple(names),
            delivery=Delivery.EXACTLY_ONCE,
            fusable=True,
        )
        for name in [f"Sink[{number}{n}]" for n in range(rng.choice([1, 2]))]
    ]
    return PipelinePlan(id=number, actions=(*sources, *sinks))
