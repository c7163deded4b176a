"""What the engine's file says about S3, in the reference's words, as what an S3 client takes. Pure.
Nothing of it may be shown: keys are among it.
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
    """How to reach S3. Without keys: what the host's environment, files or role give."""

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
            # manifests have checksums of their own, and not every S3 knows these
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
    """The client that the options of the storage mean."""
    endpoint = options.get(ENDPOINT, "")
    if endpoint and "://" not in endpoint:
        scheme = "http" if _is(options, TLS, "false") else "https"
        endpoint = f"{scheme}://{endpoint}"
    own = (
        bool(endpoint) and "amazonaws." not in endpoint
    )  # somebody's own server seldom has a name for every bucket
    return S3ClientOptions(
        key=options.get(ACCESS_KEY, ""),
        secret=options.get(SECRET_KEY, ""),
        token=options.get(TOKEN, ""),
        anonymous="Anonymous" in options.get(PROVIDER, ""),
        endpoint=endpoint,
        region=options.get(REGION, "") or ("us-east-1" if own else ""),
        path_style=_is(options, PATH_STYLE, "true") or (own and PATH_STYLE not in options),
    )


def _is(options: Mapping[str, str], key: str, word: str) -> bool:
    """Whether a switch stands at this word."""
    return options.get(key, "").strip().lower() == word
