"""https: the files that it needs, looked at before anything is bound, and what uvicorn is told.
Called by the server; what is in the files is in no text.
"""

import ssl
import threading
from typing import Any

from tidegate.model.engine import HttpSettings
from tidegate.model.errors import UserError


class UnusableCertificate(UserError):
    """A file of https that cannot be read, is no PEM, or does not fit the others."""

    condition = "certificate-unusable"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"https cannot be served with {what}: {why}. Certificate, key and client authorities"
            " must be PEM files, the key without a pass phrase"
        )


def uvicorn_options(http: HttpSettings) -> dict[str, Any]:
    """How uvicorn is told to serve https; nothing where it is off."""
    if not http.https:
        return {}
    options: dict[str, Any] = {"ssl_certfile": http.certificate, "ssl_keyfile": http.private_key}
    if http.client_authorities:
        options |= {"ssl_ca_certs": http.client_authorities, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options


def check_tls(http: HttpSettings) -> None:
    """UnusableCertificate where the files of https cannot be used: before anything is bound or
    started.
    """
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
        why = "the key has a pass phrase" if locked.is_set() else _ssl_words(error)
        raise UnusableCertificate(
            f"{http.certificate} and the key {http.private_key}", why
        ) from None
    try:
        if http.client_authorities:
            context.load_verify_locations(http.client_authorities)
    except (OSError, ssl.SSLError) as error:
        raise UnusableCertificate(http.client_authorities, _ssl_words(error)) from None


def _ssl_words(error: OSError) -> str:
    """What OpenSSL means, where it says so."""
    known = {"KEY_VALUES_MISMATCH": "the key does not belong to the certificate"}
    return known.get(getattr(error, "reason", None) or "", "nothing usable is in it")
