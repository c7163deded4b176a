"""Builds the database address of a Jdbc block from its options.

Called by source and sink, in drivers and tasks.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tidegate.databases.errors import DatabaseMissing, TransientDatabaseError
from tidegate.databases.session import Session, open_session
from tidegate.databases.url import Address, System, parse_url
from tidegate.model.errors import UserError
from tidegate.plugin.option import Values


def address_of(values: Values, database: str = "", *, creates: bool = False) -> Address:
    """The address; `database` is the default, and `creates` allows to create a missing file."""
    properties = {
        **(values.get("properties") or {}),
        "connect_timeout_s": values.get("connection_check_timeout_sec") or 30,
        "create": str(creates).lower(),
    }
    try:
        found = parse_url(values["url"], values.get("username"), values.get("password"), properties)
    except ValueError as error:
        raise UserError(f"url: {error}") from None
    if found.system is System.SQLITE:  # tasks may have another working directory
        return replace(found, database=os.path.abspath(found.database))
    if database and not found.database:
        return replace(found, database=database)
    return found


def without_create(address: Address) -> Address:
    """The same address, without creating a missing file."""
    return replace(address, properties={**address.properties, "create": "false"})


@contextmanager
def retry_missing_file(address: Address) -> Iterator[None]:
    """Treat a missing SQLite file as transient, for targets that were opened before.

    The file may come back, like a server that is down.
    """
    try:
        yield
    except DatabaseMissing:
        if address.system is not System.SQLITE:
            raise
        raise TransientDatabaseError(
            str(address), "its file was removed, or its disk is not mounted"
        ) from None


def open_existing(address: Address) -> Session:
    """Open a session to a target that was opened before."""
    with retry_missing_file(address):
        return open_session(without_create(address))
