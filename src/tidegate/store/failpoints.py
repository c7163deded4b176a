"""The failpoints that durable backends share. Called by backends only.

Each failpoint name has one call site, so backends call these functions. `Store.transact` has those
before and after a transaction.
"""

from tidegate.failpoint import failpoint


def inside_transaction() -> None:
    """Everything is decided or ready to send, and nothing is durable yet."""
    failpoint("store.transact.middle")


def before_creation() -> None:
    failpoint("store.create.before")


def inside_creation() -> None:
    failpoint("store.create.middle")


def after_creation() -> None:
    failpoint("store.create.after")


def before_compaction() -> None:
    failpoint("store.compact.before")


def inside_compaction() -> None:
    failpoint("store.compact.middle")


def after_compaction() -> None:
    failpoint("store.compact.after")
