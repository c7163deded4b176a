"""Databases from the outside: addresses, sessions, catalogues, types, chunks of keys. Shared by the
Jdbc connectors and change data capture.

    url.py         a JDBC URL -> Address (never shows its password)
    errors.py      what goes wrong, as ours: unreachable and broken off are worth another try, the rest is for a person
    session.py     one connection: `query`, `execute`, `transaction`; `open_session(address)` is the door
    mysql*.py, postgres*.py, sqlite*.py    one dialect each: connection, names and literals, catalogue, types both ways, rows as Arrow
    dialect.py     what a dialect gives; `dialect_of(address)`
    catalogue.py   names of tables, columns and keys, the same for all dialects
    chunks.py      a table cut into ranges of its key
    ddl.py         statements that make and change tables

Nothing here knows jobs, offsets or batches.
"""
