"""Check the settings of the engine's file against each other.

Caller: engine. Pure: values in, settings or problems out.
"""

from collections.abc import Iterator

from tidegate.config.engine.options import DYNAMIC_SLOT, HTTPS, SLOT_NUM, STATE_URL
from tidegate.config.engine.storage import storage_problems
from tidegate.model.engine import EngineSettings, HttpSettings
from tidegate.model.problem import Problem, Severity, closest_match
from tidegate.model.url_authority import parse_authority, parse_origin
from tidegate.plugin.option import Block, Values

SLOTS_OF_A_CORE = 2
_STORES = ("sqlite", "postgresql", "postgres", "etcd")


def slots(values: Values, cores: int) -> int | None:
    """Return how many jobs a worker runs at a time; None if its memory decides."""
    return None if values[DYNAMIC_SLOT] else values[SLOT_NUM] or SLOTS_OF_A_CORE * cores


def check(settings: EngineSettings, values: Values, block: Block) -> Iterator[Problem]:
    """Yield the problems that involve several values."""
    scheme, _, rest = settings.store_url.partition(":")
    if settings.store_url and (scheme not in _STORES or not rest.startswith("//")):
        # Without the value: it may contain a password.
        text = "this is not the address of a store that several processes can use"
        expected = "sqlite:///path, postgresql://... or etcd://..."
        yield block.problem(
            (STATE_URL,),
            text,
            expected=expected,
            suggestion=closest_match(scheme, list(_STORES)) if scheme not in _STORES else "",
        )
    for path, text in storage_problems(values):
        yield block.problem(path, text)
    yield from _http_problems(settings, values, block)
    if values[SLOT_NUM] is not None and values[DYNAMIC_SLOT]:
        yield block.problem(
            (SLOT_NUM,),
            f"{SLOT_NUM} has no effect while {DYNAMIC_SLOT} is true",
            severity=Severity.NOTICE,
        )
    url = settings.events.url
    if url and not url.startswith(("http://", "https://")):
        yield block.problem(
            ("event-report-http.url",),
            "the address of the event report has to begin with http:// or https://",
        )
    if settings.events.headers and not url:
        yield block.problem(
            ("event-report-http.headers",),
            "there are headers and no event-report-http.url to send them to",
            severity=Severity.WARNING,
        )


def _http_problems(settings: EngineSettings, values: Values, block: Block) -> Iterator[Problem]:
    http = settings.http
    if not http.enabled:
        return
    if values[HTTPS] and not (http.certificate and http.private_key):
        text = (
            "https needs http.certificate-file and http.private-key-file, in PEM. A key store"
            " becomes both by `openssl pkcs12 -in STORE -nodes -out both.pem` (a JKS one by"
            " `keytool -importkeystore -deststoretype pkcs12` first)"
        )
        yield block.problem((HTTPS,), text)
    yield from _host_problems(http, block)
    if http.basic_auth and http.password == "admin":
        yield block.problem(
            ("http.enable-basic-auth",),
            "the password is the default one, which anyone can guess",
            severity=Severity.WARNING,
        )
    if http.reachable and not http.https:
        token = (
            ""
            if http.basic_auth or http.tokens
            else (
                ". Who submits a job runs code, so callers need a token: see `tidegate token"
                " create`"
            )
        )
        text = (
            f"passwords, tokens and job files travel to {http.host} in clear: turn on {HTTPS}, or"
            f" put a proxy with TLS in front{token}"
        )
        yield block.problem(("http.host",), text, severity=Severity.WARNING)


def _host_problems(http: HttpSettings, block: Block) -> Iterator[Problem]:
    for name in http.allowed_hosts:
        if parse_authority(name) is None:
            text = (
                f"{name!r} is not a host: write a name or an address, with or without a port, and"
                " no scheme, path or wildcard"
            )
            yield block.problem(("http.allowed-hosts",), text)
    if http.external_url and parse_origin(http.external_url.rstrip("/")) is None:
        text = (
            "this is not the address of a server: write https://name or https://name:port, without"
            " a path"
        )
        yield block.problem(("http.external-url",), text)
