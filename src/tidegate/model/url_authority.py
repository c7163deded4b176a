"""Host and port of a request or a URL, normalised so that two spellings compare equal.

Pure; used by the settings and the API. Understands only what a browser sends: a name, an IPv4
address or an IPv6 address in brackets, and a port. Everything else is None, and callers reject it.
"""

import ipaddress
import re
from dataclasses import dataclass

HOST_CHARS_MAX = 255
PORT_MAX = 65_535
DEFAULT_PORTS = {"http": 80, "https": 443}
_FORM = re.compile(
    r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?)\.?)"
    r"(?::(?P<port>[0-9]{0,5}))?",
    re.IGNORECASE | re.ASCII,
)
_ORIGIN = re.compile(r"(?P<scheme>https?)://(?P<rest>[^/?#@\s]+)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Authority:
    """A host in its normalised spelling, with the port if one was given."""

    host: str
    port: int | None = None

    @property
    def loopback(self) -> bool:
        """Whether the host is certainly this machine, whatever a name server answers."""
        if self.host == "localhost":
            return True
        address = ip_of(self.host)
        return address is not None and address.is_loopback


@dataclass(frozen=True, slots=True)
class WebOrigin:
    """Scheme, host and port, as browsers compare them."""

    scheme: str
    host: str
    port: int


def parse_authority(text: str) -> Authority | None:
    """Read `host`, `host:port`, `[v6]` or `[v6]:port`; None for anything else."""
    form = _FORM.fullmatch(text) if len(text) <= HOST_CHARS_MAX else None
    if form is None:
        return None
    port = int(form["port"]) if form["port"] else None
    if port is not None and not 0 < port <= PORT_MAX:
        return None
    if form["six"] is not None:
        address = ip_of(form["six"])
        return Authority(str(address), port) if address is not None and ":" in form["six"] else None
    name = form["name"].lower()
    return None if ".." in name else Authority(name, port)


def parse_origin(text: str) -> WebOrigin | None:
    """Read the value of an Origin header, or a URL without a path; None for anything else."""
    form = _ORIGIN.fullmatch(text)
    authority = parse_authority(form["rest"]) if form else None
    return origin_of(form["scheme"].lower(), authority) if form and authority else None


def origin_of(scheme: str, authority: Authority) -> WebOrigin:
    """Return the origin of a page that was loaded from this authority."""
    return WebOrigin(scheme, authority.host, authority.port or DEFAULT_PORTS[scheme])


def ip_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an IP address; None for a name. An IPv4-mapped address becomes plain IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
