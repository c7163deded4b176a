"""Sizes in human-readable units, in one format for pages, tables and messages. Pure."""

UNITS = ("B", "KB", "MB", "GB", "TB")


def format_size(amount: float) -> str:
    """Format a size as `812 B` or `4.2 MB`: powers of 1000, as disk sizes and quotas use them."""
    for unit in UNITS[:-1]:
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} {UNITS[-1]}"
