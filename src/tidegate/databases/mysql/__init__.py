"""MariaDB and MySQL: sessions, dialect, catalogue, and the binary log.

The binary log is read exactly from one position to another, any number of times and by any number
of readers at once.

    binlog_stream.py      connection over which the server sends events
    binlog_events.py      parse events: headers, rotations, statements, table maps
    binlog_row_layout.py  columns of the catalogue, compared with table maps of the log
    binlog_values.py      decode row images, with code generated for each layout (pure Python;
                          binlog_fast_rows.pyx does the same if it was built)
    binlog_scan.py        plan a range, in the driver: where transactions end, which tables
                          are touched, which statements change a table
    binlog_reader.py      read the rows of a range, as record batches with row kinds

A position is a file and a byte in it. Ranges begin and end where a transaction ends, so that every
range holds whole transactions. Readers register as server 0, of which the server allows any number:
a repeated or speculative task never disconnects another one.
"""
