"""Errors in tasks and in Spark become Tidegate errors of one sentence."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_parts import CONTEXT, Files, Numbers, Query, batch, graph, node, table
from py4j.protocol import Py4JError
from pyspark.sql.classic.dataframe import DataFrame

from tidegate.model.errors import (
    Domain,
    Fenced,
    TerminalError,
    TidegateError,
    TransientError,
    Unsupported,
    UserError,
)
from tidegate.spark.engine import SparkEngine
from tidegate.spark.errors import (
    MARKER,
    DataRefused,
    JvmGone,
    SqlRefused,
    TaskFailed,
    TaskTerminal,
    to_wire,
    translate,
    translate_spark_errors,
    useful_line,
)


def failing(place: Path, error: Exception, fusable: bool):
    source = node(
        "source", Numbers({"tables": (table(),), "error": error}, CONTEXT), fusable=fusable
    )
    return graph(
        source=source, sink=node("sink", Files({"place": str(place)}, CONTEXT), ["source"])
    )


def asking(place: Path, *select: str):
    source = node("source", Numbers({"tables": (table(),)}, CONTEXT))
    query = node("query", Query({"select": select, "where": "true"}, CONTEXT), ["source"])
    return graph(
        source=source,
        query=query,
        sink=node("sink", Files({"place": str(place)}, CONTEXT), ["query"]),
    )


@pytest.mark.parametrize("fusable", [True, False], ids=["fused", "frames"])
@pytest.mark.parametrize(
    "error",
    [
        UserError("column x is not there"),
        Unsupported("no"),
        TransientError("the host is away\nfor now"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_tidegate_error_is_raised_with_its_class(
    engine: SparkEngine, tmp_path: Path, error: TidegateError, fusable: bool
) -> None:
    with pytest.raises(TidegateError) as caught:
        engine.run(failing(tmp_path, error, fusable), batch())
    assert (type(caught.value), str(caught.value)) == (type(error), str(error))


@pytest.mark.parametrize("fusable", [True, False], ids=["fused", "frames"])
def test_other_errors_of_a_task_are_transient_and_have_their_message(
    engine: SparkEngine, tmp_path: Path, fusable: bool
) -> None:
    with pytest.raises(TaskFailed, match=r"^ValueError: position 4711 is gone$"):
        engine.run(failing(tmp_path, ValueError("position 4711 is gone"), fusable), batch())


def test_attributes_of_an_error_are_kept() -> None:
    error = translate(_spark_error(str(to_wire(Fenced("pipeline 1", 3, 4)))))
    assert isinstance(error, Fenced)
    assert (error.what, error.mine, error.current, str(error)) == (
        "pipeline 1",
        3,
        4,
        str(Fenced("pipeline 1", 3, 4)),
    )


def test_error_class_unknown_to_the_driver_keeps_its_category() -> None:
    text = {
        "class": "nowhere:Gone",
        "terminal": True,
        "condition": "rule-broken",
        "domain": "user",
        "text": "a rule is broken",
        "facts": {},
    }
    error = translate(_spark_error(MARKER + json.dumps(text)))
    assert isinstance(error, TaskTerminal)
    assert (error.condition, error.domain, str(error)) == (
        "rule-broken",
        Domain.USER,
        "a rule is broken",
    )


def _spark_error(text: str) -> Any:
    from pyspark.errors import PySparkRuntimeError

    return PySparkRuntimeError(
        f"Traceback (most recent call last):\n  File x\nException: {text}\n\n\tat"
        " org.apache.spark.X(Y.scala:1)"
    )


def test_sql_rejected_by_spark_is_a_user_error(engine: SparkEngine, tmp_path: Path) -> None:
    with pytest.raises(SqlRefused, match=r"UNRESOLVED_COLUMN.*`ide`") as caught:
        engine.run(asking(tmp_path, "ide"), batch())
    assert "\n" not in str(caught.value)
    with pytest.raises(SqlRefused, match="PARSE_SYNTAX_ERROR"):
        engine.run(asking(tmp_path, "id +* 2"), batch())


@pytest.mark.parametrize(
    ("expression", "condition"),
    [
        ("cast(name as int) n", "CAST_INVALID_INPUT"),
        ("id / 0 n", "DIVIDE_BY_ZERO"),
        ("cast(id + 1000 as tinyint) n", "CAST_OVERFLOW"),
        ("element_at(array(1), 7) n", "INVALID_ARRAY_INDEX"),
    ],
)
def test_failed_computation_is_a_terminal_user_error(
    engine: SparkEngine, tmp_path: Path, expression: str, condition: str
) -> None:
    with pytest.raises(DataRefused, match=rf"^\[{condition}") as caught:
        engine.run(asking(tmp_path, expression), batch())
    assert isinstance(caught.value, TerminalError)
    assert caught.value.domain is Domain.USER
    assert "\n" not in str(caught.value)


def test_operator_that_cannot_be_pickled_is_reported(engine: SparkEngine, tmp_path: Path) -> None:
    import threading

    nodes = failing(tmp_path, ValueError(), True)
    nodes.sources["source"].values["lock"] = threading.Lock()
    with pytest.raises(TerminalError, match="cannot pickle"):
        engine.run(nodes, batch())


def test_broken_connection_means_that_the_jvm_is_gone() -> None:
    with pytest.raises(JvmGone, match="the Spark driver JVM is gone"), translate_spark_errors():
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("An error occurred while calling o172.schema", JvmGone),
        ("... o172.schema. Trace:\nno such type", DataRefused),
    ],
)
def test_unparsable_schema_of_a_dead_jvm_means_that_the_jvm_is_gone(
    words: str, kind: type[TidegateError]
) -> None:
    """PySpark says of both that a type cannot be parsed."""

    class Away:
        """What is left of a frame in the JVM."""

        def schema(self) -> None:
            raise Py4JError(words)

    with pytest.raises(kind), translate_spark_errors():
        vars(DataFrame)["schema"].func(SimpleNamespace(_jdf=Away()))


def test_useful_line_of_a_crashed_worker_is_not_its_stack() -> None:
    text = (
        "Job aborted\njava.lang.X: y\norg.apache.spark.SparkException: Python worker exited"
        " unexpectedly (crashed)\n\tat org.apache"
    )
    assert (
        useful_line(text)
        == "a Python worker ended unexpectedly (crashed, or killed for want of memory)"
    )


def test_useful_line_of_a_python_error_omits_the_sql_state() -> None:
    text = (
        "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown"
        " from the Python worker: Traceback (most recent call last):\n"
        '  File "/opt/tasks.py", line 22, in <module>\n    import words\nModuleNotFoundError: No'
        " module named 'words'\n SQLSTATE: 38000\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator"
        ".handlePythonException(PythonRunner.scala:665)\n"
    )
    assert useful_line(text) == "ModuleNotFoundError: No module named 'words'"


def test_useful_line_of_a_java_error_is_its_first_cause_with_a_message() -> None:
    text = (
        "An error occurred\n: org.apache.spark.SparkException: Job aborted\nCaused by:"
        " java.sql.SQLException: No suitable driver\n\tat java.sql"
    )
    assert useful_line(text) == "SQLException: No suitable driver"


def test_very_long_message_is_truncated() -> None:
    error = translate(_spark_error(str(to_wire(UserError("x" * 100_000)))))
    assert len(str(error)) == 4000
