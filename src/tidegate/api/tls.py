"""HTTPS: check the certificate files before anything is bound, and configure uvicorn.

Called by the server. No message contains anything from the files.
"""

import ssl
import threading
from typing import Any

from tidegate.model.engine import HttpSettings
from tidegate.model.errors import UserError


class UnusableCertificate(UserError):
    """An HTTPS file that cannot be read, is not PEM, or does not match the others."""

    condition = "certificate-unusable"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"HTTPS cannot be served with {what}: {why}. Certificate, key and client authorities"
            " must be PEM files, the key without a pass phrase"
        )


def uvicorn_options(http: HttpSettings) -> dict[str, Any]:
    """Return uvicorn's options for HTTPS; empty if it is off."""
    if not http.https:
        return {}
    options: dict[str, Any] = {"ssl_certfile": http.certificate, "ssl_keyfile": http.private_key}
    if http.client_authorities:
        options |= {"ssl_ca_certs": http.client_authorities, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options


def check_tls(http: HttpSettings) -> None:
    """Raise UnusableCertificate if the HTTPS files cannot be used; before anything is bound."""
    if not http.https:
        return
    for file in filter(None, (http.certificate, http.private_key, http.client_authorities)):
        try:
            open(file, "rb").close()
        except OSError as error:
            raise UnusableCertificate(file, error.strerror or str(error)) from None
    context, locked = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), threading.Event()

    def pass_phrase() -> str:
        locked.set()
        return ""

    try:
        context.load_cert_chain(http.certificate, http.private_key, password=pass_phrase)
    except (OSError, ssl.SSLError) as error:
        why = "the key has a pass phrase" if locked.is_set() else _ssl_reason(error)
        raise UnusableCertificate(
            f"{http.certificate} and the key {http.private_key}", why
        ) from None
    try:
        if http.client_authorities:
            context.load_verify_locations(http.client_authorities)
    except (OSError, ssl.SSLError) as error:
        raise UnusableCertificate(http.client_authorities, _ssl_reason(error)) from None


def _ssl_reason(error: OSError) -> str:
    """What OpenSSL means, where it says so."""
    known = {"KEY_VALUES_MISMATCH": "the key does not belong to the certificate"}
    return known.get(getattr(error, "reason", None) or "", "nothing usable is in it")
