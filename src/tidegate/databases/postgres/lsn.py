"""Convert positions of PostgreSQL's log between text and number. Pure."""


def number(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def text(value: int) -> str:
    """Format a position as the server does."""
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"
