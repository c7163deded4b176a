"""Converts exceptions into Failure records. Called by the batch loop and its attempts."""

from dataclasses import replace

from tidegate.model.errors import TidegateError, describe_os_error
from tidegate.model.records import Failure
from tidegate.model.table_changes import ChangeStop, StoppedByChange
from tidegate.redact import mask_text, redact

MESSAGE_CHARS_MAX = 4096


def failure_of(error: BaseException, now_ms: int, generation: int, pipeline: int = 0) -> Failure:
    """Describe an exception by its condition, domain and message, without secrets."""
    known = isinstance(error, TidegateError | OSError)
    text = describe_os_error(error) if isinstance(error, OSError) else str(error)
    text = mask_text(redact(text.strip())) or type(error).__name__
    return Failure(
        at_ms=now_ms,
        generation=generation,
        pipeline=pipeline,
        condition=error.condition if isinstance(error, TidegateError) else "error",
        domain=_domain(error),
        message=(text if known else f"{type(error).__name__}: {text}")[:MESSAGE_CHARS_MAX],
        change=_change(error),
    )


def _change(error: BaseException) -> ChangeStop | None:
    """The change that the user must decide about, without secrets."""
    if not isinstance(error, StoppedByChange):
        return None
    return replace(error.change, statement=mask_text(redact(error.change.statement)))


def _domain(error: BaseException) -> str:
    if isinstance(error, TidegateError):
        return error.domain.value
    return "external" if isinstance(error, OSError) else "internal"
