"""MySQL-CDC: tables of MariaDB and MySQL, and all their changes."""
