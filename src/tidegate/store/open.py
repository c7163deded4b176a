"""Open a store; the scheme of its URL selects the backend."""

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tidegate.model.errors import UserError
from tidegate.store.backend import DEFAULT_COMPACTION_THRESHOLD, Backend, Retention
from tidegate.store.base import Store
from tidegate.store.memory import MemoryBackend
from tidegate.store.sqlite.backend import SqliteBackend

CHOICES = (
    "sqlite:///absolute/path (one host, several processes),"
    " postgresql://user:password@host:port/database (several hosts),"
    " etcd://host:port,host:port/prefix (several hosts), memory: (this process only)"
)
ETCD_FORM = (
    "etcd://user:password@host:port,host:port/prefix?tls=true, with special characters of the"
    " password as %XX"
)
ETCD_PORT = 2379
ETCD_PREFIX = "tidegate"
_TRUTH = {"true": True, "false": False}


def open_store(
    url: str, *, compaction_threshold: int = DEFAULT_COMPACTION_THRESHOLD, create: bool = True
) -> Store:
    """Open the store at this URL and create it if it is missing.

    Without `create`, a missing store is StoreLost. `compaction_threshold` is the number of rows
    that the change log may have; older changes are Compacted. The URLs:

    - `sqlite:///path`: the path is absolute and literal (not URL-quoted), so that
      `f"sqlite:///{path}"` is valid for any absolute path.
    - `postgresql://user:password@host:port/database?schema=name`: as libpq accepts it; the default
      schema is `tidegate`.
    - `etcd://user:password@host:port,host:port/prefix?tls=true`: the defaults are port 2379, prefix
      `tidegate` and no TLS.
    """
    if compaction_threshold < 1:
        raise UserError(f"compaction-threshold is {compaction_threshold}; it must be at least 1")
    return Store(_backend(url, Retention(compaction_threshold), create=create))


def _backend(url: str, retention: Retention, *, create: bool) -> Backend:
    scheme, _, rest = url.partition(":")
    if url == "memory:":
        return MemoryBackend(retention=retention)
    if scheme == "sqlite" and rest.startswith("///"):
        return _sqlite(url, "/" + rest.lstrip("/"), retention, create=create)
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        # imported here because only this backend needs the client library
        from tidegate.store.postgres.backend import PostgresBackend

        return PostgresBackend(url, retention=retention, create=create)
    if scheme == "etcd" and rest.startswith("//"):
        return _etcd(url, retention, create=create)
    raise UserError(f"{_shown(url)} is not the address of a store; the choices are {CHOICES}")


def _sqlite(url: str, path: str, retention: Retention, *, create: bool) -> Backend:
    if path == "/" or "\0" in path:
        raise UserError(f"{_shown(url)} names no file; the choices are {CHOICES}")
    return SqliteBackend(Path(path), retention=retention, create=create)


def _etcd(url: str, retention: Retention, *, create: bool) -> Backend:
    from tidegate.store.etcd.backend import EtcdBackend

    try:
        parts = urlsplit(url)
    except ValueError:
        raise UserError(f"{_shown(url)} is not the address of an etcd; it is {ETCD_FORM}") from None
    user, _, hosts = parts.netloc.rpartition("@")
    username, _, password = user.partition(":")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    tls = options.pop("tls", "false")
    if not hosts or "@" in user or options or tls not in _TRUTH or parts.fragment:
        raise UserError(f"{_shown(url)} is not the address of an etcd; it is {ETCD_FORM}")
    return EtcdBackend(
        [_with_port(url, host) for host in hosts.split(",")],
        prefix=unquote(parts.path.strip("/")) or ETCD_PREFIX,
        retention=retention,
        username=unquote(username),
        password=unquote(password),
        tls=_TRUTH[tls],
        create=create,
    )


def _with_port(url: str, host: str) -> str:
    """Add the default port if there is none; the brackets of an IPv6 address are kept."""
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        name, port = host, str(ETCD_PORT)
    if not name or not (port.isascii() and port.isdigit()):
        raise UserError(
            f"{_shown(url)} is not the address of an etcd: each of its hosts is host:port"
        )
    return f"{name}:{port}"


def _shown(url: str) -> str:
    """Return a URL for messages: only its scheme if it may contain a password."""
    scheme, _, rest = url.partition(":")
    return repr(f"{scheme}:...") if "@" in rest or "?" in rest else repr(url)
