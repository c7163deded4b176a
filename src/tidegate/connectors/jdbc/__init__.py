"""Jdbc: tables of MariaDB, MySQL, PostgreSQL and SQLite as sources and, exactly once, as sinks."""
