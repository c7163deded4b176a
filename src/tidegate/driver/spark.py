"""The Spark engine of a driver.

Its JVM starts in the background while the first batches are planned (background.py), or before the
driver has a job (warm).
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.model.engine import DriverSpec
from tidegate.model.errors import TidegateError
from tidegate.model.records import JobRecord
from tidegate.pipeline.engine import Engine
from tidegate.plugin import registry
from tidegate.runner import driver_spec, scratch
from tidegate.runner.process import process_ref
from tidegate.spark import startup_cache
from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import SessionSettings, open_context, open_session

BUILD_CACHE_AFTER_S = 60.0  # a run of this length is not a trial; later starts should be faster


def spark_engine(spec: DriverSpec, job: JobRecord) -> Engine:
    home, plan = driver_spec.home_of(spec), job.plan
    settings = SessionSettings(
        name=job.name,
        work=home.work(job.job_id, spec.generation),
        logs=home.logs(job.job_id),
        cache=startup_cache.locate(home.cache),
        conf=plan.env.spark,
        jars=(*plan.jars, *plan.env.jars),
        light=all(action.fusable for pipeline in plan.pipelines for action in pipeline.actions),
    )
    engine = SparkEngine(open_context(settings))
    # Fused batches start the Python workers themselves. Others first spend about a second on SQL,
    # during which the workers can start.
    if not settings.light:
        threading.Thread(target=_warm_up, args=(engine,), name="warm-up", daemon=True).start()
    _schedule_cache_build(settings)
    return engine


def warm_spark(spec: DriverSpec) -> Callable[[DriverSpec, JobRecord], Engine]:
    """Start what any job needs: the JVM, SQL, the Python workers, the connectors.

    Creates a file named `ready` when it is done.
    """
    home, me = driver_spec.home_of(spec), process_ref(os.getpid())
    work = home.warm_work(me.pid, me.started)
    scratch.create(work)
    settings = SessionSettings(
        name="tidegate",
        work=work,
        logs=work / "logs",
        cache=startup_cache.locate(home.cache),
        conf=spec.spark,
    )
    session = open_session(settings)
    engine = SparkEngine(session)
    engine.warm_up()
    warm_up_sql(session)
    for connector in registry.connectors():
        with suppress(Exception):  # the error is reported when a job uses the connector
            connector.load()
    (work / "ready").touch()

    def begin(order: DriverSpec, job: JobRecord) -> Engine:
        move_logs(work / "logs", driver_spec.home_of(order).logs(job.job_id))
        _schedule_cache_build(settings)
        return engine

    return begin


def warm_up_sql(session: SparkSession) -> None:
    """Run one small query along the path of batches with SQL, through Arrow and Python workers."""
    session.range(4).selectExpr("id", "cast(id as string) name").createOrReplaceTempView(
        "tidegate_warm_up"
    )
    query = session.sql("select id, upper(name) name from tidegate_warm_up where id >= 0")
    query.mapInArrow(lambda batches: batches, query.schema).collect()
    session.catalog.dropTempView("tidegate_warm_up")


def move_logs(warm_logs: Path, logs: Path) -> None:
    """Move Spark's log files into the job's log directory.

    Open files move along, and a symbolic link at the old path catches new ones.
    """
    with suppress(OSError):  # a failed move of logs must not fail the job
        for file in warm_logs.iterdir():
            file.rename(logs / file.name)
        warm_logs.rmdir()
        warm_logs.symlink_to(logs, target_is_directory=True)


def _schedule_cache_build(settings: SessionSettings) -> None:
    timer = threading.Timer(
        BUILD_CACHE_AFTER_S, startup_cache.build_in_background, [settings.cache]
    )
    timer.daemon = True
    timer.start()


def _warm_up(engine: SparkEngine) -> None:
    """Warm up the engine; if this fails, the first batch fails too and reports the error."""
    with suppress(TidegateError):
        engine.warm_up()
