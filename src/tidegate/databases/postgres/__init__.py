"""PostgreSQL: sessions, dialect, catalogue, and its log.

The log is read through a logical replication slot with the plugin pgoutput, exactly from one
position to another, any number of times.

    lsn.py                positions
    pgoutput_messages.py  parse messages of pgoutput
    pgoutput_columns.py   convert values in text format to Arrow
    pgoutput_stream.py    read the messages of a range
    pgoutput_reader.py    read the rows of a range, as record batches with row kinds
    replication.py        a replication stream that is kept open between ranges
    shared_stream.py      one such stream for all processes of a host
    slots.py              create, copy, advance and inspect slots; create publications

A transaction belongs to a range if start <= position of its commit < end. Reads only peek at the
slot, they never consume it: `advance` moves it to the oldest position that a restore point may
need. A slot has one reader at a time, so a second one (a repeated task, a chunk) reads a temporary
copy.
"""
