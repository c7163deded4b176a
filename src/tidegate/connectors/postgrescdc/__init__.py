"""Postgres-CDC: tables of PostgreSQL, and all their changes."""
