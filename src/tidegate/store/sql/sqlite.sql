-- name: schema
-- Everything of a new store. `state` is one row; `changes` and `outcomes` are kept after `floor`
-- only.
create table schema_version (version integer not null) strict;
create table state (
  id integer primary key check (id = 1),
  revision integer not null,
  floor integer not null,
  change_rows integer not null
) strict;
create table entries (
  map text not null,
  key text not null,
  version integer not null,
  value text not null,
  primary key (map, key)
) strict;
create table changes (
  revision integer not null,
  map text not null,
  key text not null,
  kind text not null,
  primary key (revision, map, key)
) strict, without rowid;
create table outcomes (revision integer primary key, token blob not null) strict;
create table voids (token blob primary key, revision integer not null) strict, without rowid;
insert into state (id, revision, floor, change_rows) values (1, 0, 0, 0);
insert into schema_version (version) values (1);

-- name: identity_table
-- Which store this is: a random name, so that another one in its place is not taken for it. Stores
-- of 0.1 are given theirs when they are opened.
create table if not exists identity (id integer primary key check (id = 1), store text not null) strict;

-- name: set_identity
-- Once in the life of a store.
insert into identity (id, store) values (1, :store) on conflict (id) do nothing;

-- name: identity
-- The name of this store.
select store from identity;

-- name: schema_version
-- Which version of the schema a file has.
select version from schema_version;

-- name: table_names
-- Is this file new (none), ours (schema_version among them), or someone else's?
select name from sqlite_schema where type = 'table';

-- name: settings_of_file
-- Before the first table: free pages can be given back.
pragma auto_vacuum = incremental;

-- name: journal
-- Readers do not wait for the writer. Answers with the mode that is now in force.
pragma journal_mode = wal;

-- name: settings_of_writer
-- An acknowledged transaction outlives a power cut; the log file is cut back to 4 MiB when it
-- starts again.
pragma synchronous = full;
pragma journal_size_limit = 4194304;

-- name: settings_of_reader
-- A reader that writes is our mistake.
pragma query_only = on;

-- name: begin_read
-- One moment for several queries.
begin deferred;

-- name: begin_write
-- The write lock now, so that nothing that is read here can be changed by another before the
-- commit.
begin immediate;

-- name: commit
-- Durable when it returns.
commit;

-- name: rollback
-- As if it had never begun.
rollback;

-- name: read
-- One entry.
select key, value, version from entries where map = :map and key = :key;

-- name: read_many
-- Several entries in one statement: pairs of map and key, each looked up by its own.
select entries.map, entries.key, entries.value, entries.version
from json_each(:pairs) as asked
cross join entries on entries.map = json_extract(asked.value, '$[0]') and entries.key = json_extract(asked.value, '$[1]');

-- name: scan_map
-- All entries of a map; text is compared by its UTF-8 bytes, which is the order of code points.
select key, value, version from entries where map = :map order by key;

-- name: scan_prefix
-- The entries from the prefix up to the first key that is behind all keys with it.
select key, value, version from entries where map = :map and key >= :prefix and key < :behind order by key;

-- name: scan_from
-- As scan_prefix, where no key can be behind.
select key, value, version from entries where map = :map and key >= :prefix order by key;

-- name: versions
-- For checks: pairs of map and key, each looked up by its own.
select entries.map, entries.key, entries.version
from json_each(:pairs) as asked
cross join entries on entries.map = json_extract(asked.value, '$[0]') and entries.key = json_extract(asked.value, '$[1]');

-- name: state
-- The newest revision, the revision after which the log is complete, and how many rows it has.
select revision, floor, change_rows from state;

-- name: advance
-- The newest revision; the number of rows of the log is kept in sight without counting them.
update state set revision = :revision, change_rows = change_rows + :rows;

-- name: put
-- Write entries, new or over the old ones: map, key, version and value of each.
insert into entries (map, key, version, value)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]') from json_each(:entries) where true
on conflict (map, key) do update set version = excluded.version, value = excluded.value;

-- name: delete
-- Take entries away: pairs of map and key, each looked up by its own.
delete from entries where rowid in (
  select entries.rowid
  from json_each(:pairs) as asked
  cross join entries on entries.map = json_extract(asked.value, '$[0]') and entries.key = json_extract(asked.value, '$[1]')
);

-- name: log_changes
-- For the change feed: revision, map, key and kind of each.
insert into changes (revision, map, key, kind)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]') from json_each(:changes);

-- name: log_outcome
-- The proof that a transaction was written, for who lost the answer.
insert into outcomes (revision, token) values (?, ?);

-- name: find_outcome
-- Was it written? The revision of a transaction is above what its author had seen before, so this
-- reads only the newest rows.
select revision from outcomes where revision > :since and token = :token;

-- name: find_void
-- Was it given up?
select revision from voids where token = :token;

-- name: find_voids
-- Which of these were given up? Tokens are reported in hexadecimal figures here; there are hardly ever
-- any to look through.
select hex(token) from voids where hex(token) in (select value from json_each(:tokens));

-- name: make_void
-- Give it up: whoever brings this token later is turned away.
insert into voids (token, revision) values (:token, :revision) on conflict (token) do nothing;

-- name: feed
-- What happened to some maps after a revision.
select map, key, revision, kind from changes where revision > :since and map in (select value from json_each(:maps)) order by revision, map, key;

-- name: size_by_map
-- Entries and bytes of every map.
select map, count(*), sum(length(cast(key as blob)) + length(cast(value as blob))) from entries group by map order by map;

-- name: newest_beyond
-- The revision that has to go so that at most :kept rows of the log stay.
select revision from changes order by revision desc limit 1 offset :kept;

-- name: prune_changes
-- The log before the floor.
delete from changes where revision <= :floor;

-- name: prune_outcomes
-- The tokens before the floor.
delete from outcomes where revision <= :floor;

-- name: prune_voids
-- The tokens that were given up before the floor.
delete from voids where revision < :floor;

-- name: set_floor
-- What is left of the log.
update state set floor = :floor, change_rows = (select count(*) from changes);

-- name: give_pages_back
-- Free pages go back to the disk.
pragma incremental_vacuum;

-- name: empty_journal
-- Move the log file into the store file and cut it to nothing.
pragma wal_checkpoint(truncate);
