"""The failpoints that every durable backend passes. A name stands in one place only, so backends
share them by these functions. Called by backends only.

The front (base.py) has those before and after a transaction.
"""

from tidegate.failpoint import failpoint


def inside_transaction() -> None:
    """Everything is decided or ready to be sent, and nothing is durable yet: who dies here has
    written nothing.
    """
    failpoint("store.transact.middle")


def before_creation() -> None:
    """There is no store yet."""
    failpoint("store.create.before")


def inside_creation() -> None:
    """Half of it is made."""
    failpoint("store.create.middle")


def after_creation() -> None:
    """The store is there and durable."""
    failpoint("store.create.after")


def before_compaction() -> None:
    failpoint("store.compact.before")


def inside_compaction() -> None:
    """Some of what may go is gone."""
    failpoint("store.compact.middle")


def after_compaction() -> None:
    """All of what may go is gone."""
    failpoint("store.compact.after")
