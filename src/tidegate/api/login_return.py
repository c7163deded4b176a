"""Where a person who has to log in first wanted to go: carried through the login page, and only
ever a page of this server. Pure.
"""

from urllib.parse import urlencode

PAGES = "/ui/"
KEY = "next"
LENGTH_MAX = 1_000


def login_path(path: str, query: str) -> str:
    """The login page, with the page that was asked for; both without the context path of the
    server.
    """
    wanted = local_page(f"{path}?{query}" if query else path)
    return f"{PAGES}login" if wanted == PAGES else f"{PAGES}login?{urlencode({KEY: wanted})}"


def local_page(given: str) -> str:
    """The page that was asked for where it is one of ours, and not login or logout; else the
    overview. Nothing in it can name another server.
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
