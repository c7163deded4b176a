"""The page to return to after login: a parameter of the login page, never another server. Pure."""

from urllib.parse import urlencode

PAGES = "/ui/"
KEY = "next"
LENGTH_MAX = 1_000


def login_path(path: str, query: str) -> str:
    """Return the login page with the requested page as a parameter; both without context path."""
    target = local_page(f"{path}?{query}" if query else path)
    return f"{PAGES}login" if target == PAGES else f"{PAGES}login?{urlencode({KEY: target})}"


def local_page(given: str) -> str:
    """Return the requested page if it is one of ours and not login or logout; else the overview.

    The result can never name another server.
    """
    path = given.partition("?")[0]
    plain = given.isprintable() and given.isascii() and not any(c in given for c in "\\ #")
    parts = path.removeprefix(PAGES).split("/")
    inside = path.startswith(PAGES) and all(
        part not in ("", ".", "..") and not part.startswith("%2") for part in parts
    )
    ours = (
        plain
        and inside
        and parts[0] not in ("login", "logout", "static")
        and len(given) <= LENGTH_MAX
    )
    return given if ours else PAGES
