"""Garbage collection of orphaned state: classify, quarantine, delete."""
