"""FakeSource: made-up rows of any schema, the same ones whenever the same range is read."""
