"""Check that a request is meant for this server, and was not sent by a foreign web page. Pure.

On loopback every caller is the local admin, and a browser on this host sends whatever requests a
web page makes. Two checks stop such pages. *Host*: a page that rebinds its own name to 127.0.0.1
still sends that name. *Origin*: a page that posts to our address sends its own origin. Clients
other than browsers (curl, the CLI, SeaTunnel's clients) send no Origin and no Sec-Fetch-Site.

Headers that a proxy adds (X-Forwarded-Host, Forwarded) are not read: any client can send them. The
public address of a proxy is a setting, `http.external-url`.
"""

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

from tidegate.model.engine import HttpSettings
from tidegate.model.url_authority import Authority, ip_of, origin_of, parse_authority, parse_origin

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OWN_PAGES = ("same-origin", "none")  # values of Sec-Fetch-Site; `none`: the user, not a page
SHOWN_CHARS_MAX = 100


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is rejected."""

    status: int
    message: str


class RequestCheck:
    """The accepted hosts and origins of one server. `address` is the one that it announces."""

    def __init__(self, http: HttpSettings, address: str) -> None:
        self.scheme = "https" if http.https else "http"
        self.reachable = http.reachable
        self.external = parse_origin(http.external_url.rstrip("/"))
        bound = (
            f"[{http.host}]" if ":" in http.host and not http.host.startswith("[") else http.host
        )
        named = [bound, *http.allowed_hosts]
        announced = parse_origin(address)
        self.hosts = {known for text in named if (known := parse_authority(text)) is not None}
        self.hosts |= {
            Authority(each.host) for each in (announced, self.external) if each is not None
        }

    def refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Return why this request must be rejected; None if it may be served."""
        given = headers.getlist("host")
        if not scope["path"].startswith("/"):
            return Refusal(
                400,
                "the request target must be a path that begins with /: this server is not a proxy",
            )
        host = parse_authority(given[0].strip()) if len(given) == 1 else None
        if host is None:
            return Refusal(
                400,
                "the request needs exactly one Host header, with a name or an address and a port",
            )
        if not self._known(host, scope):
            text = f"this server does not serve the host {given[0][:SHOWN_CHARS_MAX]!r}"
            return Refusal(
                421,
                f"{text}: use its address, or add the name to http.allowed-hosts in the engine"
                " configuration",
            )
        if scope["method"] in SAFE_METHODS or self._from_own_page(host, headers):
            return None
        text = (
            "cross-origin requests are not allowed. If this server is behind a proxy, set"
            " http.external-url"
        )
        return Refusal(403, f"{text} to the address that browsers use")

    def _known(self, host: Authority, scope: Scope) -> bool:
        if host.loopback or host in self.hosts or Authority(host.host) in self.hosts:
            return True
        here = ip_of(str((scope.get("server") or ("",))[0]).partition("%")[0])
        # DNS rebinding cannot use a numeric address
        return self.reachable and here is not None and ip_of(host.host) == here

    def _from_own_page(self, host: Authority, headers: Headers) -> bool:
        sites = [value.strip().lower() for value in headers.getlist("sec-fetch-site")]
        if any(site not in OWN_PAGES for site in sites):
            return False
        own = {origin_of(self.scheme, host), self.external}
        origins = headers.getlist("origin")
        if origins:
            return all(parse_origin(each.strip()) in own - {None} for each in origins)
        return all(
            parse_origin(_without_path(each)) in own - {None} for each in headers.getlist("referer")
        )


def _without_path(url: str) -> str:
    """Scheme, host and port of a URL."""
    return "/".join(url.split("/", 3)[:3])
