"""The Spark engine of a driver. Its JVM starts in the background while the first batches are planned (background.py)."""

from tidegate.driver.main import Assignment
from tidegate.model.records import JobRecord
from tidegate.pipeline.engine import Engine
from tidegate.spark.engine import SparkEngine
from tidegate.spark.session import SessionSettings, open_session


def spark_engine(assignment: Assignment, job: JobRecord) -> Engine:
    """A started session, wrapped."""
    home, plan = assignment.home, job.plan
    settings = SessionSettings(
        name=job.name,
        work=home.work(job.job_id, assignment.generation),
        logs=home.logs(job.job_id),
        cache=home.cache,
        conf=plan.env.spark,
        jars=(*plan.jars, *plan.env.jars),
        light=all(action.fusable for pipeline in plan.pipelines for action in pipeline.actions),
    )
    return SparkEngine(open_session(settings))
