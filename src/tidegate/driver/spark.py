"""The Spark engine of a driver.

Its JVM starts in the background while the first batches are planned (background.py), or before
there is a job (warm).
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
from tidegate.runner import driver_spec as orders
from tidegate.runner import scratch
from tidegate.runner.process import reference
from tidegate.spark import startup_cache
from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import SessionSettings, open_context, open_session

CACHE_AFTER_S = (
    60.0  # a run that lasts so long is no trial: it is worth making the next start quicker
)


def spark_engine(order: DriverSpec, job: JobRecord) -> Engine:
    home, plan = orders.home_of(order), job.plan
    settings = SessionSettings(
        name=job.name,
        work=home.work(job.job_id, order.generation),
        logs=home.logs(job.job_id),
        cache=startup_cache.place(home.cache),
        conf=plan.env.spark,
        jars=(*plan.jars, *plan.env.jars),
        light=all(action.fusable for pipeline in plan.pipelines for action in pipeline.actions),
    )
    engine = SparkEngine(open_context(settings))
    # fused batches start the workers by themselves; before others there is a second of SQL to
    # start, meanwhile the workers can
    if not settings.light:
        threading.Thread(target=_warm_up, args=(engine,), name="warm-up", daemon=True).start()
    _make_next_start_quicker(settings)
    return engine


def warm_spark(order: DriverSpec) -> Callable[[DriverSpec, JobRecord], Engine]:
    """Start everything that a job will need, before there is one: the JVM, SQL, the Python workers,
    the connectors. Tells by a file that it is ready.
    """
    home, me = orders.home_of(order), reference(os.getpid())
    work = home.warm_work(me.pid, me.started)
    scratch.make(work)
    settings = SessionSettings(
        name="tidegate",
        work=work,
        logs=work / "logs",
        cache=startup_cache.place(home.cache),
        conf=order.spark,
    )
    session = open_session(settings)
    engine = SparkEngine(session)
    engine.warm_up()
    warm_up_sql(session)
    for connector in registry.connectors():
        with suppress(Exception):  # one that cannot be loaded says so when a job asks for it
            connector.load()
    (work / "ready").touch()

    def begin(order: DriverSpec, job: JobRecord) -> Engine:
        move_logs(work / "logs", orders.home_of(order).logs(job.job_id))
        _make_next_start_quicker(settings)
        return engine

    return begin


def warm_up_sql(session: SparkSession) -> None:
    """One small query on the way that batches with SQL take: parsed, planned, through Arrow into
    the Python workers and back.
    """
    session.range(4).selectExpr("id", "cast(id as string) name").createOrReplaceTempView(
        "tidegate_warm_up"
    )
    query = session.sql("select id, upper(name) name from tidegate_warm_up where id >= 0")
    query.mapInArrow(lambda batches: batches, query.schema).collect()
    session.catalog.dropTempView("tidegate_warm_up")


def move_logs(ours: Path, logs: Path) -> None:
    """What Spark has logged so far joins the job's logs, and so does what it will log: open files
    move along, and the old place leads to the new one.
    """
    with suppress(OSError):  # logs are no reason to fail
        for file in ours.iterdir():
            file.rename(logs / file.name)
        ours.rmdir()
        ours.symlink_to(logs, target_is_directory=True)


def _make_next_start_quicker(settings: SessionSettings) -> None:
    later = threading.Timer(CACHE_AFTER_S, startup_cache.build_in_background, [settings.cache])
    later.daemon = True
    later.start()


def _warm_up(engine: SparkEngine) -> None:
    """Nobody waits for it: where it fails, the first batch will too, and tells."""
    with suppress(TidegateError):
        engine.warm_up()
