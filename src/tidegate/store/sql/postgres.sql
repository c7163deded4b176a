-- name: settings_of_session
-- Unqualified names are this store's. Whatever the server's defaults are: every statement sees what
-- was committed before it, an acknowledged commit is
-- on disk, and nothing here waits or lingers without a limit.
select
  set_config('search_path', quote_ident(%(schema)s), false),
  set_config('default_transaction_isolation', 'read committed', false),
  set_config('synchronous_commit', case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end, false),
  set_config('lock_timeout', %(lock_ms)s::text, false),
  set_config('statement_timeout', %(statement_ms)s::text, false),
  set_config('idle_in_transaction_session_timeout', %(statement_ms)s::text, false);

-- name: found
-- What is at the address: the server and its encoding, does the schema exist, is it a store, is
-- anything else in it?
select
  current_setting('server_version_num')::integer as server_version,
  current_setting('server_encoding') as encoding,
  to_regnamespace(quote_ident(%(schema)s)) is not null as has_schema,
  to_regclass(format('%%I.schema_version', %(schema)s::text)) is not null as is_store,
  exists (select from pg_class where relnamespace = to_regnamespace(quote_ident(%(schema)s))) as has_relations;

-- name: lock_creation
-- Of several that make the same store, one at a time; free with the end of the transaction.
select pg_advisory_xact_lock(hashtextextended('tidegate store ' || %(schema)s, 0));

-- name: create_schema
-- The name has been judged before (postgres_address.py).
do $$ begin execute format('create schema %I', current_setting('tidegate.schema')); end $$;

-- name: name_schema
-- `do` takes no parameters.
select set_config('tidegate.schema', %(schema)s, true);

-- name: schema
-- Everything of a new store. `state` is one row, and who writes locks it first, so that revisions
-- are in the order of commits (a sequence is not).
-- `changes` and `outcomes` are kept after `floor` only. The little-filled pages let the rows that
-- are written most be rewritten in place.
create table schema_version (version integer not null);
create table state (
  id integer primary key check (id = 1),
  store uuid not null,
  revision bigint not null,
  floor bigint not null,
  change_rows bigint not null
) with (fillfactor = 10);
create table entries (
  map text collate "C" not null,
  key text collate "C" not null,
  version bigint not null,
  value text not null,
  primary key (map, key)
) with (fillfactor = 80);
create table changes (
  revision bigint not null,
  map text collate "C" not null,
  key text collate "C" not null,
  kind text not null,
  primary key (revision, map, key)
);
create table outcomes (revision bigint primary key, token bytea not null);
create table voids (token bytea primary key, revision bigint not null);
insert into state (id, store, revision, floor, change_rows) values (1, gen_random_uuid(), 0, 0, 0);
insert into schema_version (version) values (1);

-- name: functions
-- A transaction is one call, so it is one round trip, and a client that is stopped or cut off never
-- holds the lock.
create function prune(p_kept bigint) returns void language plpgsql as $$
declare
  v_floor bigint;
begin
  select greatest(s.floor, s.revision - p_kept, coalesce((select c.revision from changes c order by c.revision desc offset p_kept limit 1), 0))
  into v_floor from state s;
  delete from changes where revision <= v_floor;
  delete from outcomes where revision <= v_floor;
  delete from voids where revision < v_floor;
  update state set floor = v_floor, change_rows = (select count(*) from changes);
end $$;

create function transact(
  p_store uuid, p_token bytea, p_since bigint,
  p_check_maps text[], p_check_keys text[], p_check_versions bigint[],
  p_write_maps text[], p_write_keys text[], p_write_values text[],
  p_threshold bigint, p_kept bigint,
  out o_outcome text, out o_number bigint, out o_place integer
) language plpgsql as $$
declare
  v_state state;
  v_found bigint;
  v_rows bigint := 0;
  v_kind text;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'a transaction of the store needs the isolation level read committed';
  end if;
  select * into v_state from state for update;
  if v_state.store is distinct from p_store then
    o_outcome := 'replaced';
    return;
  end if;
  if p_since > v_state.revision then
    o_outcome := 'went-back';
    o_number := v_state.revision;
    return;
  end if;
  if exists (select from voids where token = p_token) then
    o_outcome := 'void';
    return;
  end if;
  for i in 1 .. cardinality(p_check_maps) loop
    select version into v_found from entries where map = p_check_maps[i] and key = p_check_keys[i];
    if coalesce(v_found, 0) <> p_check_versions[i] then
      o_outcome := 'conflict';
      o_number := coalesce(v_found, 0);
      o_place := i;
      return;
    end if;
  end loop;
  o_outcome := 'committed';
  o_number := v_state.revision + 1;
  for i in 1 .. cardinality(p_write_maps) loop
    if p_write_values[i] is not null then
      insert into entries (map, key, version, value) values (p_write_maps[i], p_write_keys[i], o_number, p_write_values[i])
      on conflict (map, key) do update set version = excluded.version, value = excluded.value;
      v_kind := 'put';
    else
      delete from entries where map = p_write_maps[i] and key = p_write_keys[i];
      continue when not found;
      v_kind := 'delete';
    end if;
    insert into changes (revision, map, key, kind) values (o_number, p_write_maps[i], p_write_keys[i], v_kind);
    v_rows := v_rows + 1;
  end loop;
  insert into outcomes (revision, token) values (o_number, p_token);
  update state set revision = o_number, change_rows = change_rows + v_rows;
  if greatest(v_state.change_rows + v_rows, o_number - v_state.floor) > p_threshold then
    perform prune(p_kept);
  end if;
end $$;

create function settle(p_store uuid, p_token bytea, p_since bigint, out o_outcome text, out o_number bigint) language plpgsql as $$
declare
  v_state state;
begin
  select * into v_state from state for update;
  if v_state.store is distinct from p_store then
    o_outcome := 'replaced';
    return;
  end if;
  select revision into o_number from outcomes where revision > p_since and token = p_token;
  if found then
    o_outcome := 'committed';
  elsif exists (select from voids where token = p_token) then
    o_outcome := 'void';
  elsif v_state.floor > p_since then
    o_outcome := 'forgotten';
  else
    insert into voids (token, revision) values (p_token, v_state.revision);
    o_outcome := 'void';
  end if;
end $$;

create function compact(p_kept bigint) returns void language plpgsql as $$
begin
  perform from state for update;
  perform prune(p_kept);
end $$;

-- name: schema_version
-- Which version of the schema a store has.
select version from schema_version;

-- name: store
-- Which store this is: one that was made anew under the same name is another.
select store from state;

-- name: read
-- One entry.
select key, value, version from entries where map = %(map)s and key = %(key)s;

-- name: scan
-- The entries from the prefix up to the last key that can begin with it; the columns compare by
-- bytes, which is the order of code points.
select key, value, version from entries where map = %(map)s and key >= %(prefix)s and key <= %(last)s order by key;

-- name: ask
-- Several ranges of keys, each of one map, as of one moment. The order inside keeps the server from
-- reading a whole map for a question about one key.
select q.place, e.key, e.value, e.version
from unnest(%(maps)s::text[], %(firsts)s::text[], %(lasts)s::text[]) with ordinality as q (map, first, last, place)
cross join lateral (
  select key, value, version from entries where map = q.map and key >= q.first and key <= q.last order by key
) e
order by q.place, e.key;

-- name: revision
-- The newest revision, and which store it is of.
select revision, store from state;

-- name: judge
-- For a transaction that writes nothing: the newest revision, and the first check that does not
-- hold at that moment.
select s.revision, m.place, m.found
from state s
left join (
  select c.place, coalesce(e.version, 0) as found
  from unnest(%(maps)s::text[], %(keys)s::text[], %(versions)s::bigint[]) with ordinality as c (map, key, version, place)
  left join entries e on e.map = c.map and e.key = c.key
  where coalesce(e.version, 0) <> c.version
  order by c.place
  limit 1
) m on true;

-- name: transact
-- Judge and write.
select o_outcome, o_number, o_place from transact(
  %(store)s, %(token)s, %(since)s::bigint,
  %(check_maps)s::text[], %(check_keys)s::text[], %(check_versions)s::bigint[],
  %(write_maps)s::text[], %(write_keys)s::text[], %(write_values)s::text[],
  %(threshold)s::bigint, %(kept)s::bigint
);

-- name: transact_all
-- Several transactions one after the other, durable together: each call sees what those before it
-- have written.
select o.o_outcome, o.o_number, o.o_place
from json_array_elements(%(batch)s::json) with ordinality as b (t, place)
cross join lateral transact(
  %(store)s, decode(t ->> 'token', 'hex'), (t ->> 'since')::bigint,
  array(select json_array_elements_text(t -> 'check_maps')),
  array(select json_array_elements_text(t -> 'check_keys')),
  array(select v::bigint from json_array_elements_text(t -> 'check_versions') as v),
  array(select json_array_elements_text(t -> 'write_maps')),
  array(select json_array_elements_text(t -> 'write_keys')),
  array(select json_array_elements_text(t -> 'write_values')),
  %(threshold)s::bigint, %(kept)s::bigint
) as o
order by b.place;

-- name: settle
-- Was it written? If not, whoever brings this token later is turned away.
select o_outcome, o_number from settle(%(store)s, %(token)s, %(since)s::bigint);

-- name: feed
-- What happened to some maps after a revision, with the state of the same moment; one row without a
-- key where nothing did.
select s.revision, s.floor, s.store, c.map, c.key, c.revision, c.kind
from state s
left join changes c on c.map = any(%(maps)s::text[]) and c.revision > %(since)s::bigint and s.floor <= %(since)s::bigint
order by c.revision, c.map, c.key;

-- name: size_by_map
-- Entries and bytes of every map.
select map, count(*), sum(octet_length(key) + octet_length(value)) from entries group by map order by map;

-- name: compact
-- Shorten the log and the tokens.
select compact(%(kept)s::bigint);

-- name: give_space_back
-- Dead rows; one statement each, as none of them may be in a transaction. Tables that are busy are
-- left to the server's own vacuum.
vacuum (skip_locked) state;
vacuum (skip_locked) entries;
vacuum (skip_locked) changes;
vacuum (skip_locked) outcomes;
vacuum (skip_locked) voids;
