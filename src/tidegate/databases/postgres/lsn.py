"""Positions of PostgreSQL's log. Pure."""


def number(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def text(value: int) -> str:
    """A number as the server writes it."""
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"
