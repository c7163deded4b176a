"""Deliberate breakages of the product; each must be caught by the simulation."""


def apply(name: str) -> None:
    """Break it."""
    raise KeyError(name)
