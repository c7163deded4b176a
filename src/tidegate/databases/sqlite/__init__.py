"""SQLite: session and dialect."""
