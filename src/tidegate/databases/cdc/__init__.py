"""Change data capture, as far as it is the same for all databases: tables that are read, the
snapshot and its hand-over to the log, row kinds.

The snapshot takes no locks and needs no state beside the offset. An offset is a position of the log
and, for each table, up to which key it is read. It means: the rows of these keys have been
delivered exactly as they were at that position. A batch from (P, keys up to k) to (Q, keys up to m)
therefore holds

    the changes of the log in (P, Q] of rows with a key up to k, and
    the rows with a key in (k, m] as they were at Q,

and both can be read again at any time: rows that changed after Q are taken back to what they were,
by the images before their first change after Q, which the log has. So the hand-over is exact for
every kind of sink, the log moves on while a large table is read, and a killed snapshot goes on at
the chunk.

    source.py      the Source of all databases that have a log
    selection.py   which tables are read
    progress.py    how far each table is, and the chunks that come next
    keys.py        the column that a table is cut by, and the rows of a chunk
    key_order.py   which rows of the log are in a chunk
    changes.py     row kinds where keys change or are not read yet; rows taken back
    spool.py       rows that wait, in memory or on disk
    options.py     what CDC connectors have in common in job files
    errors.py      what can be wrong, for people
"""
