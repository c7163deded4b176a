"""Jdbc source and exactly-once sink for MariaDB, MySQL, PostgreSQL, SQLite and JDBC drivers."""
