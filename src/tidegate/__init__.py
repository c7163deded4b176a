"""Tidegate: data-integration jobs on Spark that never lose their place."""

__version__ = "0.2.0"
