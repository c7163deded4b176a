"""Translate PostgreSQL's errors into errors of the store. Called by connection_pool.py."""

import psycopg

from tidegate.model.errors import TidegateError, UserError
from tidegate.store.errors import StoreDamaged, StoreLost, StoreUnavailable

SCHEMA_VERSION = 1
# libpq gives no code for a rejected connection, only text; if the server's messages are in another
# language, the error counts as StoreUnavailable.
_REFUSALS = (
    "password authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "permission denied for database",
)
_GONE = {"42P01": "a table", "42883": "a function", "3F000": "its schema", "42703": "a column"}
_UNAVAILABLE = {
    "25006": "takes no writes: it is a standby, or it is recovering",
    "40001": "had another transaction in the way, and nothing was written",
    "40P01": "had another transaction in the way, and nothing was written",
    "53100": "has a full disk, and nothing was written: make room",
    "53300": (
        "has all its connections in use: allow more (max_connections), or start fewer processes"
    ),
    "55P03": (
        "is held by another session that does not let go, and nothing was written: pg_stat_activity"
        " shows which"
    ),
    "57014": (
        "did not get done in time what it was asked for; it was stopped, and nothing was written"
    ),
}


class StoreSchemaTooNew(UserError):
    """The store was created by a newer release of Tidegate."""

    condition = "store-too-new"

    def __init__(self, shown: str, found: int) -> None:
        super().__init__(
            f"the store {shown} has schema version {found}; this Tidegate knows up to"
            f" {SCHEMA_VERSION}: upgrade it, or use another schema"
        )
        self.found = found


class NoAnswer(psycopg.OperationalError):
    """The server accepted a statement and does not answer: it is stopped or unreachable.

    Raised inside psycopg after our own timeout, and translated like the other errors.
    """


def from_server(shown: str, error: psycopg.Error) -> TidegateError:
    """Translate an error of a connection in use."""
    state = error.sqlstate or ""
    if state in _UNAVAILABLE:
        return StoreUnavailable(f"the store {shown} {_UNAVAILABLE[state]}")
    if state in _GONE:
        return StoreLost(
            f"the store {shown} was removed while it was open ({_GONE[state]} is gone): nothing was"
            " written; bring it back, or stop all processes and start them again"
        )
    if state == "42501":
        return UserError(
            f"the user of the store {shown} may not do what is needed ({_words(error)}): let it own"
            " the schema"
        )
    if state in ("XX001", "XX002"):
        return StoreDamaged(
            f"the store {shown} is damaged ({_words(error)}): restore the database from a copy;"
            " checkpoints are not in it"
        )
    return StoreUnavailable(f"the store {shown} failed: {_words(error)}")


def from_opening(shown: str, error: psycopg.Error) -> TidegateError:
    """Translate an error of the first connection: some of them no retry can repair."""
    if any(words in str(error) for words in _REFUSALS):
        return UserError(
            f"the server of the store {shown} refuses: {_words(error)}; check user, password and"
            " database of the address"
        )
    return from_connecting(shown, error)


def from_connecting(shown: str, error: psycopg.Error) -> TidegateError:
    """Translate an error of connecting."""
    return StoreUnavailable(
        f"the store {shown} cannot be reached, and nothing was written: {_words(error)}"
    )


def _words(error: psycopg.Error) -> str:
    """Return the server's message on one line, and its code."""
    sentence = error.diag.message_primary or str(error)
    text = " ".join(sentence.split())[:300] or type(error).__name__
    return f"{text} ({error.sqlstate})" if error.sqlstate else text
