"""Change data capture shared by all databases: snapshot, handover to the log, row kinds.

The snapshot takes no locks and needs no state besides the offset. An offset is a position of the
log and, for each table, the key up to which the table is read. It means: the rows of these keys
have been delivered exactly as they were at that position. A batch from (P, keys up to k) to (Q,
keys up to m) therefore holds

    the changes of the log in (P, Q] to rows with a key up to k, and
    the rows with a key in (k, m] as they were at Q.

Both can be read again at any time: rows that changed after Q are rolled back with the before images
of their first change after Q, which the log has. So the handover is exact for every kind of sink,
the log advances while a large table is read, and an interrupted snapshot resumes at its last chunk.

    source.py           base class of the sources of all databases that have a log
    selection.py        which tables are read
    progress.py         snapshot progress of each table, and the chunks that come next
    keys.py             the column that a table is split by, and the rows of a chunk
    key_order.py        which rows of the log are in a chunk
    changes.py          row kinds when keys change; rollback of snapshot rows
    column_defaults.py  values of added columns in existing rows
    spool.py            batches that wait, in memory or on disk
    options.py          options that all CDC connectors share
    errors.py           errors of change data capture
"""
