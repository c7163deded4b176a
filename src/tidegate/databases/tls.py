"""TLS settings of a URL, with the parameters of the JDBC drivers, libpq and Debezium.

Pure, except that it reads certificates. Modes: none; required (encrypted, the server is not
verified); verify-ca (its certificate is signed by the given authority); verify-full (the host name
matches too).
"""

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

from tidegate.databases.errors import TlsFailed


class TlsMode(StrEnum):
    """How a connection is protected."""

    NONE = "none"
    REQUIRED = "required"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


_MYSQL = {
    "disabled": TlsMode.NONE,
    "disable": TlsMode.NONE,
    "preferred": TlsMode.NONE,  # accepts unencrypted connections too, so it guarantees nothing
    "required": TlsMode.REQUIRED,
    "require": TlsMode.REQUIRED,
    "trust": TlsMode.REQUIRED,
    "verify-ca": TlsMode.VERIFY_CA,
    "verify-identity": TlsMode.VERIFY_FULL,
    "verify-full": TlsMode.VERIFY_FULL,
}
_AUTHORITIES = ("sslrootcert", "serversslcert", "sslca", "trustcertificatekeystoreurl")
DEBEZIUM = {
    "database.ssl.mode": "sslmode",
    "database.sslmode": "sslmode",
    "database.sslrootcert": "sslrootcert",
    "database.sslcert": "sslcert",
    "database.sslkey": "sslkey",
}
"""Debezium's settings that are accepted, with their names in a URL."""


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings of a URL.

    `ca_file` has the certificates to trust; the system's certificates if it is empty.
    """

    mode: TlsMode
    ca_file: str = ""
    certificate: str = ""
    key: str = ""


def mysql_tls(properties: Mapping[str, str]) -> Tls:
    """Parse TLS settings of MariaDB and MySQL; ValueError for an unknown mode."""
    given = {key.lower(): value for key, value in properties.items()}
    authority = next((_path(given[name]) for name in _AUTHORITIES if given.get(name)), "")
    return Tls(
        _mysql_mode(given, authority),
        authority,
        _path(given.get("sslcert", "")),
        _path(given.get("sslkey", "")),
    )


def _mysql_mode(given: Mapping[str, str], authority: str) -> TlsMode:
    word = given.get("sslmode", "").lower().replace("_", "-")
    if word:
        if word not in _MYSQL:
            raise ValueError(
                f"sslMode is {given['sslmode']!r}; use one of DISABLED, REQUIRED, VERIFY_CA,"
                " VERIFY_IDENTITY"
            )
        return _MYSQL[word]
    if not any(given.get(name, "").lower() == "true" for name in ("usessl", "requiressl")):
        return TlsMode.NONE
    return (
        TlsMode.VERIFY_CA
        if authority or given.get("verifyservercertificate", "").lower() == "true"
        else TlsMode.REQUIRED
    )


def _path(text: str) -> str:
    return unquote(urlsplit(text).path) if text.startswith("file:") else text


@cache
def tls_context(tls: Tls, where: str) -> ssl.SSLContext:
    """SSL context for Python's sockets; cached, since it reads certificates."""
    try:
        made = ssl.create_default_context(cafile=tls.ca_file or None)
        if tls.certificate:
            made.load_cert_chain(tls.certificate, tls.key or None)
    except (OSError, ssl.SSLError) as error:
        raise TlsFailed(
            where,
            f"its certificates {tls.ca_file or tls.certificate!r} cannot be read; they must"
            f" be in PEM format: {error}",
        ) from None
    made.check_hostname = tls.mode is TlsMode.VERIFY_FULL
    if tls.mode is TlsMode.REQUIRED:
        made.verify_mode = ssl.CERT_NONE
    return made


def from_debezium(settings: Mapping[str, Any] | None) -> dict[str, str]:
    """Translate Debezium's settings to parameters of a URL."""
    return {DEBEZIUM[key]: str(value) for key, value in flatten(settings or {}) if key in DEBEZIUM}


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested settings to pairs of a dotted name and a value."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
