"""Translate Spark's errors into errors of Tidegate.

Called where Spark is called: engine, build, session; `to_wire` also in the tasks. An error of ours
that is raised in a task is encoded as one line of JSON after a marker, in the text of the exception
that Spark sends to the driver. The driver builds it again with its class and fields. Every other
error is reduced to its one useful line; the full text is in Spark's own log.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pickle import PicklingError
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from tidegate.model.errors import Domain, TerminalError, TidegateError, TransientError, UserError
from tidegate.pipeline.engine import EngineGone

MARKER = "TIDEGATE-ERROR "
TEXT_MAX = 4000  # Spark's own regular expressions overflow on long texts
LINE_MAX = 1000
# Conditions of Spark for wrong data or SQL: a retry fails too.
DATA_CONDITIONS = re.compile(
    r"\[((?:CAST_|ARITHMETIC_OVERFLOW|DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|INTERVAL_|"
    r"NUMERIC_|INVALID_ARRAY_INDEX|"
    r"INVALID_INDEX|MAP_KEY|CANNOT_PARSE|"
    r"INVALID_FORMAT|INVALID_FRACTION|INVALID_PARAMETER|DATETIME_|INVALID_DATETIME|"
    r"MALFORMED_|USER_RAISED_EXCEPTION|BINARY_ARITHMETIC_OVERFLOW|CONVERSION_INVALID)[A-Z_.0-9]*)\]"
)
# Conditions for something that the job file names and that does not exist.
JOB_CONDITIONS = re.compile(
    r"\[(DATA_SOURCE_NOT_FOUND|UNSUPPORTED_DATA_SOURCE|CANNOT_LOAD_|PATH_NOT_FOUND|"
    r"TABLE_OR_VIEW_NOT_FOUND)[A-Z_.0-9]*\]"
)
CANCELLED = re.compile(
    r"cancelled part of cancelled job group|cancelled because|SPARK_JOB_CANCELLED|Job \d+"
    r" cancelled",
    re.I,
)
# Errors of executors whose Python cannot run our tasks: pattern and message.
INCOMPATIBLE_EXECUTORS = (
    (
        re.compile(r"No module named '?(tidegate|pyspark|pyarrow|pandas)\b"),
        "the Python of the executors has no module {0}",
    ),
    (re.compile(r'Cannot run program "([^"]+)"'), "the executors have no program {0}"),
    (re.compile(r"PYTHON_VERSION_MISMATCH\] (.{,200}?)(?:, PySpark|\. |\n|$)"), "{0}"),
)
SHUT_DOWN = re.compile(r"SparkContext was shut down|stopped SparkContext", re.I)
JVM_GONE_TEXT = "the JVM has ended; its error text is lost"
GONE = (ConnectionError, Py4JNetworkError, EOFError)


class JvmGone(EngineGone):
    """The JVM of this driver has ended; only a new driver can continue."""

    condition = "jvm-gone"

    def __init__(self) -> None:
        super().__init__("the Spark driver JVM is gone")


class ApplicationEnded(EngineGone):
    """Spark has shut the context down: the application was removed, or the JVM is ending."""

    condition = "spark-application-ended"

    def __init__(self) -> None:
        super().__init__(
            "Spark has shut this application down (the cluster removed it, or the JVM is ending);"
            " spark.log says why"
        )


class BatchCancelled(TransientError):
    """The batch was interrupted on request."""

    condition = "batch-cancelled"

    def __init__(self, pipeline: int) -> None:
        super().__init__(f"the running batch of pipeline {pipeline} was cancelled")
        self.pipeline = pipeline


class TaskFailed(TransientError):
    """A task failed for an unknown reason; a retry may succeed."""

    condition = "task-failed"


class TaskTerminal(TerminalError):
    """A task failed with a terminal error whose class the driver does not know."""

    condition = "task-failed"


class ExecutorsIncompatible(TransientError):
    """The executors have another Python than the driver, or lack a module."""

    condition = "executors-unfit"
    domain = Domain.EXTERNAL

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; spark.pyspark.python must name a Python on every host of the cluster that has"
            " Tidegate of this version in it"
        )


class SqlRefused(UserError):
    """Spark rejects the SQL, or something that it names."""

    condition = "bad-sql"


class DataRefused(UserError):
    """A value cannot be converted or computed as the job file requires."""

    condition = "bad-data"


class NotPicklable(TerminalError):
    """An operator cannot be pickled and sent to the tasks."""

    condition = "cannot-travel"


class TaskError(Exception):
    """Carries an encoded error out of a task."""


def to_wire(error: Exception) -> Exception:
    """Encode an error in a task, so that the driver can rebuild it."""
    if isinstance(error, TaskError):
        return error
    kind = type(error)
    ours = isinstance(error, TidegateError)
    text = str(error) if ours else last_line(f"{kind.__name__}: {error}")
    facts = {key: value for key, value in vars(error).items() if _plain(value)} if ours else {}
    document = {
        "class": f"{kind.__module__}:{kind.__qualname__}" if ours else "",
        "terminal": isinstance(error, TerminalError),
        "condition": getattr(error, "condition", ""),
        "domain": getattr(error, "domain", Domain.INTERNAL),
        "text": text[:TEXT_MAX],
        "facts": facts,
    }
    return TaskError(MARKER + json.dumps(document))


def _plain(value: Any) -> bool:
    try:
        return len(json.dumps(value)) <= TEXT_MAX
    except (TypeError, ValueError):
        return False


@contextmanager
def translate_spark_errors() -> Iterator[None]:
    """Translate errors of the body; used around every call of Spark in the driver."""
    try:
        yield
    except TidegateError:
        raise
    except (PySparkException, Py4JError, PicklingError, ConnectionError, EOFError) as error:
        raise translate(error) from error


def translate(error: BaseException) -> TidegateError:
    """Return our error for an exception of Spark, py4j or pickle."""
    text = _text(error)
    if text == JVM_GONE_TEXT or any(_is_gone(each) for each in _wrapped(error)):
        return JvmGone()
    if SHUT_DOWN.search(text):
        return ApplicationEnded()
    if isinstance(error, PicklingError):
        return NotPicklable(f"an operator cannot be sent to the tasks: {last_line(text)}")
    if MARKER in text:
        return _from_wire(text)
    if isinstance(error, AnalysisException | ParseException):
        return SqlRefused(f"Spark refuses: {useful_line(text)}")
    return _classify(text)


def _classify(text: str) -> TidegateError:
    """Classify an error by the text of Spark."""
    for pattern, sentence in INCOMPATIBLE_EXECUTORS:
        if found := pattern.search(text):
            return ExecutorsIncompatible(sentence.format(found[1]))
    if found := JOB_CONDITIONS.search(text):
        return SqlRefused(f"Spark refuses: {_condition_text(text, found.start())}")
    if found := DATA_CONDITIONS.search(text):
        return DataRefused(_condition_text(text, found.start()))
    return TaskFailed(useful_line(text))


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and the ones that PySpark has wrapped.

    For example, PySpark reports a lost connection as a schema that cannot be parsed.
    """
    found: BaseException | None = error
    while found is not None:
        yield found
        found = (
            (found.__cause__ or found.__context__) if isinstance(found, PySparkException) else None
        )


def _is_gone(error: BaseException) -> bool:
    """Whether the JVM is gone: the connection is lost, or py4j's error has no Java trace."""
    if isinstance(error, GONE):
        return True
    return (
        isinstance(error, Py4JError)
        and not isinstance(error, Py4JJavaError)
        and "Trace:" not in str(error)
    )


def _text(error: BaseException) -> str:
    if isinstance(error, Py4JJavaError):
        try:
            return f"{error.java_exception.toString()}\n{error}"
        except (Py4JError, ConnectionError):  # the JVM has ended meanwhile
            return JVM_GONE_TEXT
    return str(error)


def _from_wire(text: str) -> TidegateError:
    document, _ = json.JSONDecoder().raw_decode(text, text.index(MARKER) + len(MARKER))
    kind = _class(document["class"]) if document["class"] else TaskFailed
    if kind is None:  # a class that exists only in the workers
        kind = TaskTerminal if document["terminal"] else TaskFailed
        document["facts"] |= {
            "condition": document["condition"],
            "domain": Domain(document["domain"]),
        }
    error = kind.__new__(kind, document["text"])
    error.args = (document["text"],)
    error.__dict__.update(document["facts"])
    return error


def _class(name: str) -> type[TidegateError] | None:
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found if isinstance(found, type) and issubclass(found, TidegateError) else None


def is_cancellation(error: BaseException) -> bool:
    """Whether Spark reports that the job was cancelled, by anyone."""
    return bool(CANCELLED.search(_text(error)))


def useful_line(text: str) -> str:
    """Extract the most informative line of a long error text."""
    if "Python worker exited unexpectedly" in text:
        return "a Python worker ended unexpectedly (crashed, or killed for want of memory)"
    if "Traceback (most recent call last)" in text:
        return last_line(_traceback_of(text))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        caused = re.match(r"(?:Caused by: )?(?:[\w$]+\.)+(\w+(?:Exception|Error)): (.*)", line)
        if caused and caused[1] != "SparkException":
            return f"{caused[1]}: {caused[2]}"[:LINE_MAX]
    return (lines[0] if lines else "Spark failed without a message")[:LINE_MAX]


def _traceback_of(text: str) -> str:
    """Return the last Python traceback of a text, without what Spark and Java append."""
    traceback = text.rpartition("Traceback (most recent call last)")[2]
    return re.split(
        r"\n\s*(?:at [\w.$/]+\(|SQLSTATE: |Driver stacktrace|JVM stacktrace|==)", traceback
    )[0]


def last_line(text: str) -> str:
    """Return the last line that is not blank."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "")[:LINE_MAX]


def _condition_text(text: str, start: int) -> str:
    """Return the message of a condition, without the query context that Spark appends."""
    end = re.search(r" SQLSTATE: |\n", text[start:])
    return text[start : start + end.start()] if end else text[start : start + LINE_MAX]
