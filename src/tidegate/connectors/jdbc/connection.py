"""The address of a Jdbc block's database, from its options. Called by source and sink, in drivers and tasks."""

import os
from dataclasses import replace

from tidegate.databases.url import Address, System, parse_url
from tidegate.model.errors import UserError
from tidegate.plugin.option import Values


def address_of(values: Values, database: str = "", *, creates: bool = False) -> Address:
    """The address; `database` where the URL names none. `creates`: a file that is not there is made."""
    properties = {**(values.get("properties") or {}), "connect_timeout_s": values.get("connection_check_timeout_sec") or 30, "create": str(creates).lower()}
    try:
        found = parse_url(values["url"], values.get("username"), values.get("password"), properties)
    except ValueError as error:
        raise UserError(f"url: {error}") from None
    if found.system is System.SQLITE:  # tasks may have another working directory
        return replace(found, database=os.path.abspath(found.database))
    if database and not found.database:
        return replace(found, database=database)
    return found
