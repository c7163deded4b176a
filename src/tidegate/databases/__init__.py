"""Database access for the Jdbc connectors and for change data capture.

    url.py         parses a JDBC URL into an Address (never shows its password)
    errors.py      errors of databases; connection failures are transient, the rest needs a user
    session.py     one connection: `query`, `execute`, `transaction`; see `open_session(address)`
    mysql/, postgres/, sqlite/    one dialect each: session, names and literals, catalog, types
                   in both directions, rows as Arrow
    dialect.py     the interface of a dialect; `dialect_of(system)`
    catalog.py     names of tables, columns and keys, the same for all dialects
    chunks.py      splits a table into ranges of its key
    ddl.py         statements that create and change tables
    targets/       what columns of a sink's table can store

Nothing here knows jobs, offsets or batches.
"""
