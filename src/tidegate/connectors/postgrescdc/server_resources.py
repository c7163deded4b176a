"""Resources of a Postgres-CDC job on its server: a slot and a publication.

They are recorded before they are created, and dropped when no restore can need them. A slot or
publication that existed before the job is used, and never dropped.
"""

from collections.abc import Iterator

from tidegate.databases.postgres.session import PostgresSession
from tidegate.databases.url import Address, parse_url
from tidegate.plugin.contract import OperatorContext, Resource
from tidegate.plugin.option import Values

NAME, SLOT, PUBLICATION = "name of a replication slot", "replication slot", "publication"


def location_of(address: Address) -> str:
    """Return the location of a database: the same in all job files, without credentials."""
    return f"{address.host}:{address.port}/{address.database}"


def names(values: Values, _context: OperatorContext) -> Iterator[Resource]:
    """Yield the name of the slot, which only one job may use at a time."""
    address = parse_url(str(values["url"]), "", "", {})
    yield Resource(
        kind=NAME, name=str(values["slot.name"]), location=location_of(address), lasting=False
    )


def drop(resource: Resource, values: Values) -> None:
    """Drop a slot or a publication if it exists.

    A slot that is in use raises an error, so that it is retried later.
    """
    session = PostgresSession(
        parse_url(str(values["url"]), values["username"], values["password"], {})
    )
    try:
        if resource.kind == SLOT:
            session.query(
                "select pg_drop_replication_slot(slot_name) from pg_replication_slots where"
                " slot_name = %s",
                (resource.name,),
            )
        elif resource.kind == PUBLICATION:
            quoted = '"' + resource.name.replace('"', '""') + '"'
            session.execute(f"drop publication if exists {quoted}")
    finally:
        session.close()
