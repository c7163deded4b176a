"""Queries of PostgreSQL's catalog: tables, columns and keys. Called by postgres/dialect.py."""

from tidegate.databases.catalog import NativeColumn, TableInfo, TableName
from tidegate.databases.postgres.session import PostgresSession, translate_errors
from tidegate.databases.session import Session

_TABLES = """
select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition and n.nspname !~ '^pg_'
  and n.nspname <> 'information_schema' order by 1, 2"""
# The recursion resolves domains to their base types.
_COLUMNS = """
with recursive base as (
  select a.attnum, a.attname, a.attnotnull, a.attgenerated, a.attrelid, a.attcollation,
    a.atttypid as type, a.atttypmod as size,
    a.atttypid as own_type, a.atttypmod as own_size
  from pg_attribute a where a.attrelid = to_regclass(%s) and a.attnum > 0 and not a.attisdropped
  union all
  select b.attnum, b.attname, b.attnotnull, b.attgenerated, b.attrelid, b.attcollation,
    t.typbasetype, t.typtypmod, b.own_type, b.own_size
  from base b join pg_type t on t.oid = b.type where t.typtype = 'd')
select b.attname, format_type(b.type, b.size), not b.attnotnull,
  coalesce(col_description(b.attrelid, b.attnum), ''), b.attgenerated <> '',
  coalesce((select format('%%I.%%I', n.nspname, c.collname)
    from pg_collation c join pg_namespace n on n.oid = c.collnamespace
    where c.oid = b.attcollation), ''), b.own_type, b.own_size, b.attnum
from base b join pg_type t on t.oid = b.type where t.typtype <> 'd' order by b.attnum"""
_KEYS = """
select i.indexrelid::text, i.indisprimary, a.attname, a.attnotnull, i.indimmediate
from pg_index i cross join lateral unnest(i.indkey) with ordinality k(number, place)
join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
where i.indrelid = to_regclass(%s) and i.indisunique and i.indisvalid and i.indpred is null
  and i.indexprs is null and k.place <= i.indnkeyatts
order by i.indisprimary desc, i.indexrelid, k.place"""

KINDS = {
    "r": "table",
    "p": "partitioned table",
    "v": "view",
    "m": "materialized view",
    "f": "foreign table",
    "S": "sequence",
    "i": "index",
    "I": "index",
    "c": "composite type",
}


def tables(session: Session, database: str) -> list[TableName]:
    """List tables and views of the session's database, without partitions."""
    own = str(session.scalar("select current_database()"))
    return (
        [TableName(own, schema, table) for schema, table in session.query(_TABLES)]
        if database in ("", own)
        else []
    )


def table_info(session: Session, name: TableName) -> TableInfo | None:
    """Read a table with its columns and keys; None if it does not exist."""
    path = ".".join('"' + part.replace('"', '""') + '"' for part in (name.schema, name.table))
    columns = tuple(
        NativeColumn(
            name=column,
            native=native,
            nullable=nullable,
            comment=comment,
            generated=generated,
            collation=collation,
            type_id=int(type_id),
            modifier=int(modifier),
            number=int(number),
        )
        for column, native, nullable, comment, generated, collation, type_id, modifier, number in (
            session.query(_COLUMNS, (path,))
        )
    )
    if not columns:
        return None
    primary: list[str] = []
    others: dict[str, list[str]] = {}
    nullable_indexes: set[str] = set()
    deferrable: dict[str, list[str]] = {}
    for index, is_primary, column, not_null, immediate in session.query(_KEYS, (path,)):
        (primary if is_primary else others.setdefault(index, [])).append(column)
        if not immediate:
            deferrable.setdefault(index, []).append(column)
        if not not_null:
            nullable_indexes.add(index)
    unique = next(
        (tuple(names) for index, names in others.items() if index not in nullable_indexes), ()
    )
    described = session.query(
        "select obj_description(oid, 'pg_class'), relkind::text from pg_class where oid ="
        " to_regclass(%s)",
        (path,),
    )
    comment, kind = described[0] if described else ("", "r")
    return TableInfo(
        name=name,
        columns=columns,
        primary_key=tuple(primary),
        unique_key=unique,
        deferrable_keys=tuple(map(tuple, deferrable.values())),
        comment=comment or "",
        kind=KINDS.get(str(kind), str(kind)),
    )


def query_columns(session: Session, sql: str) -> list[NativeColumn]:
    """Describe the result columns of a query by running it without rows."""
    assert isinstance(session, PostgresSession)
    with session.connection.cursor() as cursor:
        translate_errors(
            session.address,
            lambda: cursor.execute(f"select * from ({sql}) tidegate_query limit 0".encode()),
        )
        described = [
            (column.name, column.type_code, column._fmod) for column in cursor.description or ()
        ]
    return [
        NativeColumn(
            name=name, native=str(session.scalar("select format_type(%s, %s)", (oid, size)))
        )
        for name, oid, size in described
    ]
