"""Parse the URL of a store on PostgreSQL. Called by backend.py.

`postgresql://[user[:password]@]host[:port][,host...]/database[?schema=name&...]`: everything except
`schema` is passed on to libpq. The URL may contain a password, so no text made here contains it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tidegate.model.errors import UserError

DEFAULT_SCHEMA = "tidegate"
SCHEMA_NAME = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
# A part of a password with unquoted special characters may end up in the host name: such a URL is
# rejected before it can appear anywhere.
HOST_NAMES = re.compile(r"[A-Za-z0-9._,:/%*\[\]-]*")
FORM = (
    "postgresql://user:password@host:port/database, with special characters of the password as %XX"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresAddress:
    """The parsed URL of a store; `parameters` contains the password, so repr omits it."""

    shown: str  # for messages, without user and password
    schema: str
    parameters: Mapping[str, str | int] = field(repr=False)


def read_address(url: str) -> PostgresAddress:
    """Parse a URL; UserError if it is not valid."""
    base, _, query = url.partition("?")
    schema, rest = _without_schema(query)
    try:
        found = {
            name: str(value)
            for name, value in conninfo_to_dict(f"{base}?{rest}" if rest else base).items()
            if value is not None
        }
    except psycopg.Error:
        raise UserError(
            f"the address of the store on PostgreSQL cannot be read: it is {FORM}"
        ) from None  # libpq quotes what it does not understand
    host, port, database = (found.get(name, "") for name in ("host", "port", "dbname"))
    if not HOST_NAMES.fullmatch(host) or not re.fullmatch(r"[0-9,]*", port) or "@" in database:
        raise UserError(f"the address of the store on PostgreSQL cannot be read: it is {FORM}")
    if not database:
        raise UserError(f"the address of the store on PostgreSQL names no database: it is {FORM}")
    shown = f"postgresql://{_hosts(host, port)}/{database}" + (
        "" if schema == DEFAULT_SCHEMA else f"?schema={schema}"
    )
    return PostgresAddress(shown=shown, schema=schema, parameters=dict(found))


def _hosts(host: str, port: str) -> str:
    hosts, ports = host.split(","), port.split(",")
    if len(ports) != len(hosts):
        ports = ports[:1] * len(hosts)
    return ",".join(f"{h}:{p}" if p else h for h, p in zip(hosts, ports, strict=True))


def _without_schema(query: str) -> tuple[str, str]:
    """Return our own parameter and the rest of the query for libpq."""
    schema, rest = DEFAULT_SCHEMA, []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name != "schema":
            rest.append(part)
            continue
        schema = unquote(value)
        if not SCHEMA_NAME.fullmatch(schema):
            raise UserError(
                f"{schema[:80]!r} cannot name the schema of a store: lower-case letters, digits and"
                " _, not pg_ first, at most 63"
            )
    return schema, "&".join(rest)
