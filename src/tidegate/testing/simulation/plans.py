"""The jobs of a simulated world, by chance: bounded and unbounded, of one or two pipelines with one
to three sources, well and badly behaved.
"""

import random

from tidegate.model.job import BlockKind, JobEnv, JobMode
from tidegate.model.plan import Action, Delivery, PipelinePlan, Plan

FAULT_PLANS = ("good", "good", "good", "flaky", "flaky", "failing", "dying", "hanging", "deaf")


def drawn_plan(rng: random.Random, name: str) -> Plan:
    """Small batches, few retries: runs are short. The fault plan of its drivers is in its env."""
    streaming = rng.random() < 0.4
    fault_plan = rng.choice(FAULT_PLANS)
    interval = streaming or fault_plan == "hanging" or rng.random() < 0.8
    env = JobEnv(
        mode=JobMode.STREAMING if streaming else JobMode.BATCH,
        retry_times=(
            rng.choice([0, 1, 2, 3, 20])
            if fault_plan in ("good", "flaky")
            else rng.choice([0, 1, 2])
        ),
        retry_interval_s=rng.choice([0, 1]),
        checkpoint_interval_ms=rng.choice([1000, 2000]) if interval else None,
        checkpoint_timeout_ms=3000,
        checkpoints_retained_max=rng.choice([1, 2, 3]),
        batch_rows_max=rng.choice([4, 8, 15]) if interval else None,
        retain_after_cancel=rng.choice([None, True, False, False]),
        custom_parameters={"fault_plan": fault_plan},
    )
    return Plan(
        job_name=name,
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
            options={
                "base": number * 1_000_000 + n * 100_000,
                "rows": rng.choice([0, 1, 5, 9, 14, 20, 25]),
            },
            fusable=True,
        )
        for n, name in enumerate(names)
    ]
    sink = f"Sink[{number}0]"
    action = Action(
        operator=sink,
        label=sink,
        kind=BlockKind.SINK,
        plugin="SimSink",
        options={},
        inputs=tuple(names),
        delivery=Delivery.EXACTLY_ONCE,
        fusable=True,
    )
    return PipelinePlan(id=number, actions=(*sources, action))
