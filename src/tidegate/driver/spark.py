"""The Spark engine of a driver. Its JVM starts in the background while the first batches are planned (background.py)."""

import threading
from contextlib import suppress

from tidegate.driver.main import Assignment
from tidegate.model.errors import TidegateError
from tidegate.model.records import JobRecord
from tidegate.pipeline.engine import Engine
from tidegate.spark import startup_cache
from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import SessionSettings, open_context

CACHE_AFTER_S = 60.0  # a run that lasts so long is no trial: it is worth making the next start quicker


def spark_engine(assignment: Assignment, job: JobRecord) -> Engine:
    """A started session, wrapped."""
    home, plan = assignment.home, job.plan
    cache = startup_cache.place(home.cache)
    settings = SessionSettings(
        name=job.name,
        work=home.work(job.job_id, assignment.generation),
        logs=home.logs(job.job_id),
        cache=cache,
        conf=plan.env.spark,
        jars=(*plan.jars, *plan.env.jars),
        light=all(action.fusable for pipeline in plan.pipelines for action in pipeline.actions),
    )
    engine = SparkEngine(open_context(settings))
    if not settings.light:  # fused batches start the workers by themselves; before others there is a second of SQL to start, meanwhile the workers can
        threading.Thread(target=_warm_up, args=(engine,), name="warm-up", daemon=True).start()
    later = threading.Timer(CACHE_AFTER_S, startup_cache.build_in_background, [cache])
    later.daemon = True
    later.start()
    return engine


def _warm_up(engine: SparkEngine) -> None:
    """Nobody waits for it: where it fails, the first batch will too, and tells."""
    with suppress(TidegateError):
        engine.warm_up()
