"""FakeSource: generated rows of any schema, reproducible for the same range."""
