"""Restore: options, where state comes from, the plan and its report."""
