"""Assert: a sink that stores nothing and fails the job if a rule is broken."""
