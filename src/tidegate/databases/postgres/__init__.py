"""PostgreSQL: sessions, dialect, catalog, and its log.

The log, through a logical replication slot and its plugin pgoutput, read exactly
from one position to another, any number of times.

    lsn.py        positions
    pgoutput_messages.py  messages of pgoutput from their bytes
    pgoutput_columns.py   values as the server writes them, to Arrow
    pgoutput_stream.py    the messages of a range, as the server sends them
    pgoutput_reader.py    the rows of a range, as record batches with row kinds
    slots.py      slots and publications: made, copied, moved on, asked how they are

A transaction belongs to a range iff start <= position of its commit < end. The slot is only looked
at (peek), never consumed: it moves on by `advance`, to the oldest position that anyone may still
ask for. A slot has one reader at a time, so a second one (a repeated task, a chunk) looks through a
temporary copy.
"""
