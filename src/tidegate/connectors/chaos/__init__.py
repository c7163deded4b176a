"""Chaos: a source and a sink that fail, crash, hang or slow down by seed and probability."""
