"""The env block: old and new names, what is ignored on Spark, and problems."""

import pytest

from tidegate.config.load import read_text
from tidegate.model.job import JobEnv, JobMode
from tidegate.model.problem import Severity

BLOCKS = "\nsource { A {} }\nsink { B {} }"


def read(env, **more):
    return read_text(f"env {{\n{env}\n}}{BLOCKS}", "job.conf", **more)


def env_of(env):
    reading = read(env)
    assert reading.problems == ()
    return reading.spec.env


def test_a_job_without_env_has_the_defaults():
    assert read_text(BLOCKS, "job.conf").spec.env == JobEnv()


def test_every_option_has_its_field():
    env = env_of(
        """job.name = n, job.mode = streaming, parallelism = "4", job.retry.times = 5
        job.retry.interval.seconds = 7
        checkpoint.interval = 1000, checkpoint.timeout = 2000, min-pause = 50
        checkpoint.retain-after-job-cancelled = false, checkpoint.max-retained = 3
        read_limit.rows_per_second = 10, read_limit.bytes_per_second = 20
        batch.max-rows = 100, batch.max-bytes = 200, batch.max-files = 300, pipeline_concurrency = 2
        jars = "a.jar; b.jar;", tag_filter { zone = a, n = 1 }, custom_parameters { p.q = 1 }
        spark.executor.memory = 1g, spark.executor.cores = 2"""
    )
    assert env == JobEnv(
        job_name="n",
        mode=JobMode.STREAMING,
        parallelism=4,
        retry_times=5,
        retry_interval_s=7,
        checkpoint_interval_ms=1000,
        checkpoint_timeout_ms=2000,
        checkpoint_pause_ms_min=50,
        retain_after_cancel=False,
        checkpoints_retained_max=3,
        rows_per_second=10,
        bytes_per_second=20,
        batch_rows_max=100,
        batch_bytes_max=200,
        batch_files_max=300,
        pipeline_concurrency=2,
        jars=("a.jar", "b.jar"),
        tags={"zone": "a", "n": "1"},
        custom_parameters={"p.q": 1},
        spark={"spark.executor.memory": "1g", "spark.executor.cores": "2"},
    )


def test_nested_keys_are_the_same_as_flat_ones():
    nested = env_of(
        "job { mode = STREAMING, retry { times = 1 } }, checkpoint { interval = 500 }, spark {"
        " executor { memory = 1g } }"
    )
    assert nested == env_of(
        "job.mode = STREAMING, job.retry.times = 1, checkpoint.interval = 500,"
        " spark.executor.memory = 1g"
    )


def test_old_names_are_supported():
    env = env_of(
        "execution.parallelism = 3, execution.checkpoint.interval = 1000,"
        " execution.checkpoint.timeout = 2000"
    )
    assert (env.parallelism, env.checkpoint_interval_ms, env.checkpoint_timeout_ms) == (
        3,
        1000,
        2000,
    )


def test_the_new_name_wins_over_the_old_one():
    assert env_of("execution.parallelism = 3, parallelism = 2").parallelism == 2


@pytest.mark.parametrize(
    ("option", "severity"),
    [
        ("flink.execution.checkpointing.mode = x", Severity.NOTICE),
        ("flink { state { backend = x } }", Severity.NOTICE),
        ("execution.state.backend = x", Severity.NOTICE),
        ("savemode.execute.location = CLIENT", Severity.NOTICE),
        ("sink.flush.interval = 5", Severity.NOTICE),
        ("engine.observability.enabled = true", Severity.NOTICE),
        ("multi_table.failure_policy = CONTINUE_OTHER_TABLES", Severity.WARNING),
        ("error_handler { mode = ROUTE, sink { plugin_name = X } }", Severity.WARNING),
        ("paralelism = 5", Severity.WARNING),
    ],
)
def test_unsupported_options_are_accepted_and_reported_with_their_line(option, severity):
    reading = read(option)
    [problem] = reading.problems
    assert (problem.severity, problem.at.line) == (severity, 2)
    assert reading.spec.notices == reading.problems


def test_a_misspelt_key_gets_a_suggestion_and_is_an_error_when_strict():
    [problem] = read("paralelism = 5", strict=True).problems
    assert (problem.severity, problem.suggestion, problem.path) == (
        Severity.ERROR,
        "parallelism",
        "env.paralelism",
    )


@pytest.mark.parametrize(
    "option",
    [
        "job.mode = BACH",
        "parallelism = many",
        "checkpoint.interval = 5",
        "job.retry.times = -1",
        "tag_filter = x",
    ],
)
def test_a_wrong_value_is_an_error(option):
    [problem] = read(option).errors
    assert problem.path.startswith("env.")


def test_all_wrong_values_are_reported_at_once():
    assert len(read("job.mode = BACH\nparallelism = many\ncheckpoint.timeout = soon").errors) == 3
