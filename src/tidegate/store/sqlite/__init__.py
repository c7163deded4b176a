"""The store in a SQLite file: one host, several processes."""
