"""Create a store in a PostgreSQL database, or find the existing one. Called by backend.py.

Any number of processes may start at the same moment: one of them creates the schema in one
transaction, and the others wait for it.
"""

from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from tidegate.model.errors import UserError
from tidegate.store import failpoints
from tidegate.store.errors import StoreLost
from tidegate.store.postgres.address import PostgresAddress
from tidegate.store.postgres.connection_pool import SQL, ConnectionPool, LimitedConnection
from tidegate.store.postgres.errors import SCHEMA_VERSION, StoreSchemaTooNew

SERVER_VERSION_MIN = 130000


@dataclass(frozen=True, kw_only=True, slots=True)
class SchemaState:
    """The state of the configured schema."""

    server_version: int
    encoding: str
    has_schema: bool
    is_store: bool
    has_relations: bool


def prepare(connections: ConnectionPool, *, create: bool) -> UUID:
    """Return the identity of the store, which is created if it is missing and `create` is set."""
    with connections.repeatable() as db:
        found = _inspect(db, connections.address)
        if not found.is_store and not create:
            raise StoreLost(
                f"the store {connections.address.shown} is gone: Tidegate waits for it and does not"
                " create a new one"
            )
        if not found.is_store:
            _create(db, connections.address)
        (version,) = db.execute(SQL["schema_version"].encode()).fetchone() or (0,)
        if version > SCHEMA_VERSION:
            raise StoreSchemaTooNew(connections.address.shown, version)
        (store,) = db.execute(SQL["store"].encode()).fetchone() or (None,)
    if not isinstance(store, UUID):
        raise UserError(
            f"the store {connections.address.shown} is empty of what every store has: remove its"
            " schema, or use another one"
        )
    return store


def _inspect(db: LimitedConnection, address: PostgresAddress) -> SchemaState:
    with db.cursor(row_factory=class_row(SchemaState)) as cursor:
        found = cursor.execute(
            SQL["found"].encode(), {"schema": address.schema}, prepare=False
        ).fetchone()
    assert found is not None, "a query without a table has one row"
    if found.server_version < SERVER_VERSION_MIN:
        raise UserError(
            f"the server of {address.shown} is PostgreSQL {found.server_version // 10000}; a store"
            f" needs {SERVER_VERSION_MIN // 10000} or newer"
        )
    if found.encoding != "UTF8":
        raise UserError(
            f"the database of {address.shown} has the encoding {found.encoding}; a store needs"
            " UTF8: make another database"
        )
    if found.has_relations and not found.is_store:
        raise UserError(
            f"the schema {address.schema} of {address.shown} is of something else, not a store: use"
            " another one (?schema=name)"
        )
    return found


def _create(db: LimitedConnection, address: PostgresAddress) -> None:
    failpoints.before_creation()
    with db.transaction():
        db.execute(SQL["lock_creation"].encode(), {"schema": address.schema})
        found = _inspect(db, address)  # another process may have created it meanwhile
        if found.is_store:
            return
        if not found.has_schema:
            db.execute(SQL["name_schema"].encode(), {"schema": address.schema})
            db.execute(SQL["create_schema"].encode())
        db.execute(SQL["schema"].encode())
        db.execute(SQL["functions"].encode())
        failpoints.inside_creation()
    failpoints.after_creation()
