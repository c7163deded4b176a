"""MariaDB and MySQL: sessions, dialect, catalog, and the binary log.

The binary log of MariaDB and MySQL, read exactly from one position to another, any number of
times and by any number of readers at once.

    binlog_stream.py      a connection that the server sends events to
    binlog_events.py      events from bytes: headers, rotations, statements, the layouts of tables
    binlog_row_layout.py  a table as the log writes it, put together from the log and from the catalogue
    binlog_values.py      row images to columns, generated for each layout (pure Python; binlog_fast_rows.pyx does the same where it is built)
    binlog_scan.py        the driver's look at a range: where transactions end, which tables are touched, which statements change a table
    binlog_reader.py      the rows of a range, as record batches with row kinds

A position is a file and a byte in it. Ranges begin and end where a transaction ends, so that every
range holds whole transactions. Readers call themselves server 0, as the server allows any number of
those: a repeated or speculative task never cuts another one off.
"""
