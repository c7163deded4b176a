"""The Spark engine of a driver. Its JVM starts in the background while the first batches are planned (background.py)."""

import threading

from tidegate.driver.main import Assignment
from tidegate.model.records import JobRecord
from tidegate.pipeline.engine import Engine
from tidegate.spark import startup_cache
from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import SessionSettings, open_session

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
    engine = SparkEngine(open_session(settings))
    later = threading.Timer(CACHE_AFTER_S, startup_cache.build_in_background, [cache])
    later.daemon = True
    later.start()
    return engine
