"""Measures Tidegate against raw PySpark that does the same work, side by side in one run.

`make bench`; figures are in README.md.
"""
