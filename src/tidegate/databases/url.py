"""Address of a database, parsed from a JDBC URL and related options.

Pure; called when a job file is checked and when it runs.

`jdbc:mysql://host:3306/shop?useSSL=false`, `jdbc:mariadb://...`,
`jdbc:postgresql://host/shop?currentSchema=sales`, `jdbc:sqlite:/path/file.db`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tidegate.redact import MASK, address_secrets, mask_address


class System(StrEnum):
    """Databases with a native driver, which need no JVM."""

    MYSQL = "mysql"  # MariaDB too
    POSTGRES = "postgresql"
    SQLITE = "sqlite"


PORTS = {System.MYSQL: 3306, System.POSTGRES: 5432, System.SQLITE: 0}
SCHEMES = {
    "mysql": System.MYSQL,
    "mariadb": System.MYSQL,
    "postgresql": System.POSTGRES,
    "postgres": System.POSTGRES,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Host, database and credentials; `str` never holds the password.

    For SQLite, `database` is the path of the file.
    """

    system: System
    host: str = ""
    port: int = 0
    database: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        if self.system is System.SQLITE:
            return f"sqlite:{self.database}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.system.value}://{host}:{self.port}/{self.database}"

    def uri(self, scheme: str) -> str:
        """Connection URI for drivers; holds the password, so it must not be shown."""
        credentials = (
            f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user else ""
        )
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{credentials}{host}:{self.port}/{quote(self.database, safe='')}"

    def mask(self, text: str) -> str:
        """Remove the password from a driver's message, in every quoting."""
        for secret in {
            self.password,
            quote(self.password, safe=""),
            self.password.replace('"', '\\"'),
        } - {""}:
            text = text.replace(secret, MASK)
        return text

    @property
    def creates_file(self) -> bool:
        """Whether a missing SQLite file is created."""
        return self.properties.get("create") == "true"

    @property
    def connect_timeout_s(self) -> int:
        """Timeout for opening a connection."""
        raw = self.properties.get("connect_timeout_s", "30")
        return max(1, int(raw)) if raw.isdigit() else 30


def parse_url(
    url: str,
    username: str | None = None,
    password: str | None = None,
    properties: Mapping[str, Any] | None = None,
) -> Address:
    """Parse an address; ValueError with a message for the user, without secrets."""
    text = url.strip().removeprefix("jdbc:")
    if text.startswith("sqlite:"):
        return _sqlite(text, properties or {})
    scheme = text.partition("://")[0].lower()
    if scheme not in SCHEMES or "://" not in text:
        raise ValueError(
            f"{scheme or 'this'!r} is not a supported database; use jdbc:mysql://,"
            " jdbc:mariadb://, jdbc:postgresql:// or jdbc:sqlite:"
        )
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(
            "the URL has no readable host and port: write jdbc:mysql://host:3306/database"
        ) from None
    if not parts.hostname:
        raise ValueError("the URL names no host: write jdbc:mysql://host:3306/database")
    system = SCHEMES[scheme]
    given = dict(parse_qsl(parts.query, keep_blank_values=True)) | {
        str(k): str(v) for k, v in (properties or {}).items()
    }
    return Address(
        system=system,
        host=parts.hostname,
        port=port or PORTS[system],
        database=unquote(parts.path.removeprefix("/")),
        user=username or unquote(parts.username or "") or given.pop("user", ""),
        password=password or unquote(parts.password or "") or given.pop("password", ""),
        properties=given,
    )


def _sqlite(text: str, properties: Mapping[str, Any]) -> Address:
    path = text.removeprefix("sqlite:").partition("?")[0].removeprefix("//")
    if not path or path == ":memory:":
        raise ValueError("the URL names no file: write jdbc:sqlite:/path/to/file.db")
    return Address(
        system=System.SQLITE,
        database=path,
        properties={str(k): str(v) for k, v in properties.items()},
    )


def has_native_dialect(url: str) -> bool:
    """Whether a native driver supports the URL, without a JVM."""
    text = url.strip().removeprefix("jdbc:")
    return text.startswith("sqlite:") or text.partition("://")[0].lower() in SCHEMES


def url_without_secrets(url: str) -> str:
    """A URL without its secrets, for messages."""
    return mask_address(url)


def mask_secrets(url: str, password: str | None, text: str) -> str:
    """Remove the URL's passwords and `password` from a driver's message, in every quoting."""
    secrets = {*address_secrets(url), *map(unquote, address_secrets(url)), password or ""} - {""}
    for secret in sorted(secrets | {quote(one, safe="") for one in secrets}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
