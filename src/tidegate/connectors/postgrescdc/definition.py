"""Definitions of tables in the catalogue, which an offset records besides their columns.

Called by source.py, in the driver. `fingerprint` is one cheap query for all tables, run with every
plan: the transactions that wrote the rows of the catalogue, hashed. Most of its time was planning,
so the server keeps its plan. Only if the fingerprint has changed, `definitions_of` reads the
definitions themselves. A definition is JSON:

    oid          the table
    attributes   how many columns it ever had
    persistence  p if the log has its changes and those of all partitions
    row          the transaction that wrote its row of the catalogue
    columns      by number: the transaction that wrote the row of the column, and
                 whether a rewrite of the files alone has done so
    parts        the table and its partitions: [oid, name, file, attached by,
                 identity, columns of the identity]
    key          columns, the constraint or index behind them, whether it is
                 checked immediately, whether it was created with a column
    types        by number, of types that can be changed: enums as [[number,
                 label, transaction]], composites as [[number, name, type, modifier]]
    publication  [its number, the transaction that wrote it, its owner,
                 membership of the table, of the schema]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.databases.postgres.pgoutput_row_layout import RowLayout, layout_of
from tidegate.databases.session import Session

FIRST_OWN_OID = 16_384
"""Types below it are built in and never change."""
Definition = dict[str, Any]

_NAMED = (
    "select ord, to_regclass(name)::oid as root from unnest(%s::text[]) with ordinality u(name,"
    " ord)"
)
_NUMBERED = "select ord, root from unnest(%s::oid[]) with ordinality u(root, ord)"
_TREE = """
with recursive named as materialized ({named}),
tree as (
  select ord, root as id, 0 as depth, '0'::xid as since from named where root is not null
  union all
  select t.ord, i.inhrelid, t.depth + 1, i.xmin from tree t join pg_inherits i on i.inhparent = t.id
  join pg_class c on c.oid = i.inhrelid where c.relispartition {attached})"""
_FINGERPRINT = (
    _TREE.replace("{named}", _NUMBERED)
    + """,
ids as materialized (select array(select root from named
  where root is not null) || %s::oid[] as found)
select concat_ws('|',
  (select hash_array_extended(array_agg(n.xmin), 0) from pg_namespace n
    where n.nspname = any(%s::text[])),
  (select concat_ws(',', hash_array_extended(array_agg(c.oid), 0),
    hash_array_extended(array_agg(c.xmin), 0), hash_array_extended(array_agg(t.since), 0))
    from tree t join pg_class c on c.oid = t.id),
  (select hash_array_extended(array_agg(a.xmin), 0) from pg_attribute a, ids
    where a.attrelid = any(ids.found) and a.attnum > 0),
  (select hash_array_extended(array_agg(i.xmin), 0) from pg_index i, ids
    where i.indrelid = any(ids.found)),
  (select hash_array_extended(array_agg(e.xmin), 0) from pg_enum e
    where e.enumtypid = any(%s::oid[])),
  (select hash_array_extended(array_agg(r.xmin), 0) from pg_publication_rel r, ids
    where r.prrelid = any(ids.found)),
  {schemas}
  (select array[oid::text, xmin::text]::text from pg_publication where pubname = %s)),
array(select distinct t.ord from tree t join pg_lock_status() l on l.relation = t.id
  where l.mode = 'AccessExclusiveLock' and l.granted and l.pid is distinct from pg_backend_pid()
  and l.database = (select oid from pg_database where datname = current_database()))"""
)
_TABLES = (
    _TREE.replace("{named}", _NAMED)
    + """,
parts as (
  select t.ord, max(c.relpersistence::text) as persistence, json_agg(json_build_array(c.oid::bigint,
    format('"%%s"."%%s"', replace(n.nspname, '"', '""'), replace(c.relname, '"', '""')),
      coalesce(pg_relation_filenode(c.oid), 0)::bigint,
    t.since::text, c.relreplident,
    coalesce((select json_agg(a.attname order by k.place) from pg_index i cross
      join lateral unnest(i.indkey) with ordinality k(number, place)
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
      where i.indrelid = c.oid and i.indisvalid and i.indimmediate and k.place <= i.indnkeyatts
      and case c.relreplident when 'd' then i.indisprimary when 'i' then i.indisreplident else
        false end), '[]'::json)
  ) order by t.depth, c.oid) as parts
  from tree t join pg_class c on c.oid = t.id
    join pg_namespace n on n.oid = c.relnamespace group by t.ord),
columns as (
  select n.ord, json_agg(json_build_array(a.attnum, a.attname, a.atttypid::bigint, a.atttypmod,
    a.attnotnull,
    a.attgenerated <> '', a.xmin::text, a.xmin = c.xmin
      and a.cmin::text::bigint > c.cmin::text::bigint) order by a.attnum) as columns
  from named n join pg_class c on c.oid = n.root join pg_attribute a on a.attrelid = n.root
  where a.attnum > 0 and not a.attisdropped group by n.ord),
keys as (
  select n.ord, json_agg(json_build_array(i.indisprimary, i.indimmediate, coalesce(k.oid,
    i.indexrelid)::bigint,
    (select json_agg(e.number order by e.place) from unnest(i.indkey) with ordinality e(number,
      place) where e.place <= i.indnkeyatts),
    exists (select 1 from pg_attribute a where a.attrelid = i.indrelid
      and a.attnum = any(i.indkey) and a.xmin = coalesce(k.xmin, i.xmin)))
    order by i.indisprimary desc, i.indexrelid) as keys
  from named n join pg_index i on i.indrelid = n.root
  left join pg_constraint k on k.conindid = i.indexrelid and k.conrelid = i.indrelid
    and k.contype in ('p', 'u')
  where i.indisunique and i.indisvalid and i.indpred is null and i.indexprs is null group by n.ord)
select n.ord, n.root::bigint, c.relkind::text, p.persistence, c.relnatts, c.xmin::text,
  row_security_active(c.oid), p.parts, a.columns, k.keys
from named n join pg_class c on c.oid = n.root left join parts p using (ord) left
  join columns a using (ord) left join keys k using (ord)"""
)
_TYPES = """
with recursive used as (
  select a.attrelid as root, a.atttypid as type from pg_attribute a
  where a.attrelid = any(%s::oid[]) and a.attnum > 0 and not a.attisdropped and a.atttypid >= %s
  union
  select u.root, x.type from used u join pg_type t on t.oid = u.type cross join lateral (
    select t.typelem as type union all select t.typbasetype
    union all select a.atttypid from pg_attribute a where a.attrelid = t.typrelid
      and t.typtype = 'c' and a.attnum > 0 and not a.attisdropped
    union all select r.rngsubtype from pg_range r where r.rngtypid = t.oid) x
  where x.type >= %s)
select u.root::bigint, t.oid::bigint, t.typrelid::bigint, t.typtype::text, case t.typtype
  when 'e' then (select json_agg(json_build_array(e.oid::bigint, e.enumlabel, e.xmin::text)
    order by e.oid) from pg_enum e where e.enumtypid = t.oid)
  else (select json_agg(json_build_array(a.attnum, a.attname, a.atttypid::bigint,
    a.atttypmod) order by a.attnum) from pg_attribute a
    where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped) end
from used u join pg_type t on t.oid = u.type where t.typtype in ('e', 'c') order by 1, 2"""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A value that changes with every definition, and the tables that are locked exclusively."""

    value: str
    locked: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogTable:
    """A table in the catalogue: its recorded definition, and what is needed once.

    `columns` are (name, type, modifier, number) of those that the log has.
    """

    definition: Definition
    columns: tuple[tuple[str, int, int, int], ...]
    kind: str
    hidden: bool
    """Whether row security hides rows of it from this user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedTable:
    """A table that is read: its quoted name, and the key columns that the job file names."""

    quoted: str
    key: tuple[str, ...] = ()


def layout_of_definition(
    columns: Sequence[Sequence[Any]], definition: Mapping[str, Any] | None
) -> RowLayout:
    """Return the layout of a table; of its columns only, if no definition is recorded.

    The log shows the identity of a partitioned table, not of its partitions.
    """
    if not definition or "oid" not in definition:
        return layout_of(columns)
    root = definition["parts"][0]
    return layout_of(columns, int(definition["oid"]), str(root[4]), root[5])


def roots_of(session: Session, tables: Mapping[str, WatchedTable]) -> dict[str, int]:
    """Return the oids of existing tables, by path."""
    found = session.query(
        f"select ord, root::bigint from ({_NAMED}) named where root is not null",
        ([table.quoted for table in tables.values()],),
    )
    paths = list(tables)
    return {paths[int(ord_) - 1]: int(root) for ord_, root in found}


def fingerprint(
    session: Session,
    roots: Mapping[str, int],
    schemas: Sequence[str],
    publication: str,
    types: "Types",
    version: int,
) -> Fingerprint:
    """Return the fingerprint of tables by their oids, and of the types of their columns.

    A table that loses its name to another one gets a new row in the catalogue.
    """
    sql = _for_version(_FINGERPRINT, version)
    paths = list(roots)
    parameters = (
        _oids(list(roots.values())),
        _oids(types.relations),
        list(schemas),
        _oids(types.enums),
        publication,
    )
    value, locked = session.query_prepared(sql, parameters)[0]
    return Fingerprint(str(value), frozenset(paths[int(n) - 1] for n in locked))


def _oids(numbers: Sequence[int]) -> str:
    """Format an array for the server.

    Sending a list of numbers costs more than comparing them.
    """
    return "{" + ",".join(map(str, numbers)) + "}"


@dataclass(frozen=True, slots=True)
class Types:
    """Changeable types of columns: enums, and the relations of composite types."""

    enums: list[int]
    relations: list[int]


def definitions_of(
    session: Session, tables: Mapping[str, WatchedTable], publication: str, version: int
) -> tuple[dict[str, CatalogTable], Types]:
    """Return the definitions by path, without missing tables, and the types in use."""
    paths = list(tables)
    rows = session.query(_for_version(_TABLES, version), ([tables[p].quoted for p in paths],))
    types, own = _types_of(session, rows)
    members = _memberships(session, publication, [int(row[1]) for row in rows], version)
    found = {}
    for ord_, root, kind, persistence, attributes, written, hidden, parts, columns, keys in rows:
        path = paths[int(ord_) - 1]
        definition = {
            "oid": int(root),
            "attributes": int(attributes),
            "persistence": persistence,
            "row": written,
            "columns": {str(c[0]): [c[6], c[7]] for c in columns or ()},
            "parts": parts,
            "key": list(_key(tables[path].key, columns or (), keys or ())),
            **({"types": types[int(root)]} if int(root) in types else {}),
            "publication": members[int(root)],
        }
        logged = tuple(
            (str(c[1]), int(c[2]), int(c[3]), int(c[0])) for c in columns or () if not c[5]
        )
        found[path] = CatalogTable(
            definition=definition, columns=logged, kind=str(kind), hidden=bool(hidden)
        )
    return found, own


def _for_version(sql: str, version: int) -> str:
    schemas = (
        "(select hash_array_extended(array_agg(s.oid), 0) from pg_publication_namespace s),"
        if version >= 150_000
        else ""
    )
    return sql.replace(
        "{attached}", "and not i.inhdetachpending" if version >= 140_000 else ""
    ).replace("{schemas}", schemas)


def _types_of(
    session: Session, rows: Sequence[Sequence[Any]]
) -> tuple[dict[int, dict[str, Any]], Types]:
    roots = [int(row[1]) for row in rows if any(int(c[2]) >= FIRST_OWN_OID for c in row[8] or ())]
    found: dict[int, dict[str, Any]] = {}
    enums: set[int] = set()
    relations: set[int] = set()
    if roots:
        for root, type_id, relation, kind, parts in session.query(
            _TYPES, (roots, FIRST_OWN_OID, FIRST_OWN_OID)
        ):
            found.setdefault(int(root), {})[str(type_id)] = parts or []
            if kind == "e":
                enums.add(int(type_id))
            else:
                relations.add(int(relation))
    return found, Types(sorted(enums), sorted(relations))


def _key(
    configured: tuple[str, ...], columns: Sequence[Sequence[Any]], keys: Sequence[Sequence[Any]]
) -> tuple[list[str], int, bool, bool]:
    """Return the key, what guarantees it, whether always, and whether it came with a column.

    The key is chosen by the rule of databases/cdc/selection.py.
    """
    names = {int(c[0]): (str(c[1]), bool(c[4])) for c in columns}
    usable = [
        ([names[n][0] for n in numbers], int(guard), bool(immediate), bool(together))
        for primary, immediate, guard, numbers, together in keys
        if all(n in names for n in numbers) and (primary or all(names[n][1] for n in numbers))
    ]
    if configured:
        same = next((key for key in usable if set(key[0]) == set(configured)), None)
        return (list(configured), *same[1:]) if same else (list(configured), 0, True, False)
    return usable[0] if usable else ([], 0, True, False)


def _memberships(
    session: Session, publication: str, roots: Sequence[int], version: int
) -> dict[int, list[Any]]:
    """Return how each table belongs to the publication.

    The numbers change when a table is removed from it and added again.
    """
    found = session.query(
        "select oid::bigint, xmin::text, pubowner::bigint from pg_publication where pubname = %s",
        (publication,),
    )
    if not found:
        return {root: [] for root in roots}
    number, written, owner = found[0]
    direct: dict[Any, Any] = dict(
        session.query(
            "select prrelid::bigint, oid::bigint from pg_publication_rel where prpubid = %s",
            (number,),
        )
    )
    schemas: dict[Any, Any] = {}
    if version >= 150_000:
        sql = (
            "select c.oid::bigint, s.oid::bigint from pg_publication_namespace s join pg_class c on"
            " c.relnamespace = s.pnnspid where s.pnpubid = %s and c.oid = any(%s::oid[])"
        )
        schemas = dict(session.query(sql, (number, list(roots))))
    return {
        root: [
            int(number),
            str(written),
            int(owner),
            int(direct.get(root, 0)),
            int(schemas.get(root, 0)),
        ]
        for root in roots
    }
