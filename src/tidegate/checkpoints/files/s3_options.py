"""Translate the engine's S3 options, which are SeaTunnel's, into arguments of an S3 client. Pure.

They contain keys, so nothing of them may appear in messages or logs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ACCESS_KEY, SECRET_KEY, TOKEN = "fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token"
ENDPOINT, REGION = "fs.s3a.endpoint", "fs.s3a.endpoint.region"
PATH_STYLE, TLS = "fs.s3a.path.style.access", "fs.s3a.connection.ssl.enabled"
PROVIDER = "fs.s3a.aws.credentials.provider"
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5, 30
CONNECTIONS_MAX = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class S3ClientOptions:
    """How to connect to S3. Without keys, boto searches environment, files and role of the host."""

    key: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    anonymous: bool = False
    endpoint: str = ""
    region: str = ""
    path_style: bool = False

    @property
    def arguments(self) -> dict[str, Any]:
        config = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "read_timeout": READ_TIMEOUT_S,
            "max_pool_connections": CONNECTIONS_MAX,
            "retries": {"max_attempts": 2, "mode": "standard"},
            # manifests have their own checksums, and not every S3 server supports these
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
            **({"s3": {"addressing_style": "path"}} if self.path_style else {}),
        }
        client = {
            name: value
            for name, value in (("endpoint_url", self.endpoint), ("region_name", self.region))
            if value
        }
        keys = {"key": self.key or None, "secret": self.secret or None, "token": self.token or None}
        return {**keys, "anon": self.anonymous, "client_kwargs": client, "config_kwargs": config}


def client_of(options: Mapping[str, str]) -> S3ClientOptions:
    """Read the options of the checkpoint storage."""
    endpoint = options.get(ENDPOINT, "")
    if endpoint and "://" not in endpoint:
        scheme = "http" if _is(options, TLS, "false") else "https"
        endpoint = f"{scheme}://{endpoint}"
    # a private server seldom has a DNS name for every bucket
    private = bool(endpoint) and "amazonaws." not in endpoint
    return S3ClientOptions(
        key=options.get(ACCESS_KEY, ""),
        secret=options.get(SECRET_KEY, ""),
        token=options.get(TOKEN, ""),
        anonymous="Anonymous" in options.get(PROVIDER, ""),
        endpoint=endpoint,
        region=options.get(REGION, "") or ("us-east-1" if private else ""),
        path_style=_is(options, PATH_STYLE, "true") or (private and PATH_STYLE not in options),
    )


def _is(options: Mapping[str, str], key: str, word: str) -> bool:
    return options.get(key, "").strip().lower() == word
