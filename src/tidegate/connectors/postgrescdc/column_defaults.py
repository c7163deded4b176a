"""Values that existing rows get when a column is added to a table of PostgreSQL.

Called by check.py, in the driver. The catalogue keeps that value for rows that were not written
since. If it keeps none and there is a default, every row may have its own value.
"""

from tidegate.databases.cdc.column_defaults import UNKNOWN, ColumnDefaults, parse_constant
from tidegate.databases.cdc.selection import CdcTable
from tidegate.databases.dialect import Dialect
from tidegate.databases.postgres.pgoutput_columns import elements
from tidegate.databases.session import Session

_MISSING = """
select attname, case when atthasmissing then attmissingval::text end,
  atthasdef or attidentity <> '' from pg_attribute
where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped"""


def read_column_defaults(session: Session, dialect: Dialect, cdc_table: CdcTable) -> ColumnDefaults:
    """Return the values of the catalogue, by column."""
    types = {c.name: c.type for c in cdc_table.table.columns}
    found: ColumnDefaults = {}
    for name, missing, computed in session.query(
        _MISSING, (dialect.qualified(cdc_table.info.name),)
    ):
        if name not in types:
            continue
        if missing is None:
            found[name] = UNKNOWN if computed else None
            continue
        try:
            (text,) = elements(missing)
        except ValueError:  # an array in an array
            found[name] = UNKNOWN
            continue
        found[name] = None if text is None else parse_constant(text, types[name])
    return found
