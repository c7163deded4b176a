"""What a Postgres-CDC job has on its server: a slot and a publication. Recorded before they are
made, dropped when nobody can need them.

A slot or publication that was there before the job is somebody's own: it is used, and never
dropped.
"""

from collections.abc import Iterator

from tidegate.databases.postgres.session import PostgresSession
from tidegate.databases.url import Address, parse_url
from tidegate.plugin.contract import OperatorContext, Resource
from tidegate.plugin.option import Values

NAME, SLOT, PUBLICATION = "name of a replication slot", "replication slot", "publication"


def place_of(address: Address) -> str:
    """Where it is, the same for everyone who means the same database, and without credentials."""
    return f"{address.host}:{address.port}/{address.database}"


def names(values: Values, _context: OperatorContext) -> Iterator[Resource]:
    """The slot's name, which only one job may use at a time."""
    address = parse_url(str(values["url"]), "", "", {})
    yield Resource(
        kind=NAME, name=str(values["slot.name"]), location=place_of(address), lasting=False
    )


def drop(resource: Resource, values: Values) -> None:
    """Take a slot or a publication away; missing is fine, and one that is still being read is tried
    again later.
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
