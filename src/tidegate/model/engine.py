"""Settings of the engine: what a server, a worker and a driver run with.

Made by config/engine from the engine's file; every setting has a working default. Fields that can
hold a password are left out of `repr`, so that settings may be logged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ScheduleStrategy(StrEnum):
    """What happens to a job that finds no free slot."""

    WAIT = "WAIT"
    REJECT = "REJECT"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSettings:
    """Defaults for checkpoints; the env block of a job overrides them."""

    interval_ms: int | None = None  # None: 10 s for streaming jobs, a single batch for BATCH jobs
    timeout_ms: int = 30_000
    pause_ms_min: int = 0
    retained_max: int = 3
    retain_after_cancel: bool = True
    tolerable_failures: int = 0
    orphan_ttl_minutes: int = 10_080  # 0: orphans are kept
    quarantine_minutes: int = 1_440
    quota_mb: int = 0  # 0: none
    quota_warning_percent: int = 80
    log_retention_interval_ms: int = 30_000
    log_retention_warning_ms: int = 21_600_000
    storage_type: str = "localfile"
    storage_root: str = ""  # an absolute path or a URL; empty: below the home
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpSettings:
    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = 8080
    context_path: str = ""
    dynamic_port: bool = False
    port_range: int = 100
    basic_auth: bool = False
    username: str = "admin"
    # The default of SeaTunnel; only used with basic_auth.
    password: str = field(default="admin", repr=False)
    # Require a token. Always on if other hosts can reach the API and nothing else authenticates.
    tokens: bool = False
    https: bool = False
    https_port: int = 8443
    certificate: str = ""  # PEM files
    private_key: str = ""
    # CA certificates; if set, clients must present a certificate that one of them has signed.
    client_authorities: str = ""
    # Allowed Host headers besides the bound address, the announced address and loopback.
    allowed_hosts: tuple[str, ...] = ()
    external_url: str = ""  # the URL that browsers use through a proxy
    # From the connection to the end of the request headers, including the TLS handshake.
    header_timeout_ms: int = 10_000
    body_timeout_ms: int = 60_000
    keep_alive_timeout_ms: int = 5_000
    connections_max: int = 0  # 0: as many as the file descriptor limit allows
    connections_per_peer_max: int = 0  # 0: half of them

    @property
    def reachable(self) -> bool:
        """Whether other hosts can connect."""
        return not (self.host.startswith("127.") or self.host in ("localhost", "::1", "[::1]"))

    @property
    def requires_authentication(self) -> bool:
        """Whether a request without credentials is rejected."""
        return self.basic_auth or self.tokens or (self.reachable and not self.client_authorities)


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorSettings:
    lease_ms: int = 3_000
    start_timeout_ms: int = 120_000
    stop_timeout_ms: int = 30_000
    schedule: ScheduleStrategy = ScheduleStrategy.WAIT


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSettings:
    lease_ms: int = 5_000
    slots: int | None = None  # None: as many as memory allows
    tags: Mapping[str, str] = field(default_factory=dict)
    warm: int = 0  # idle drivers with a started JVM


@dataclass(frozen=True, kw_only=True, slots=True)
class EventSettings:
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    non_terminal: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """All settings of an installation; an empty `store_url` is the embedded store of the home."""

    store_url: str = field(default="", repr=False)
    compaction_threshold: int = 10_000
    write_behind_ms: int = 500
    state_cleanup_delay_ms: int = 60_000
    history_expire_minutes: int = 1_440
    checkpoint: CheckpointSettings = CheckpointSettings()
    http: HttpSettings = HttpSettings()
    coordinator: CoordinatorSettings = CoordinatorSettings()
    worker: WorkerSettings = WorkerSettings()
    events: EventSettings = EventSettings()
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverSpec:
    """Everything a driver process needs, sent as one JSON line on its standard input.

    Nothing of it is on a command line or in an environment variable, where other users could read
    it.
    """

    version: int = 1
    home: str
    job_id: int
    generation: int
    worker: str = ""
    store_url: str = field(repr=False)
    checkpoints_root: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    compaction_threshold: int = 10_000
    write_behind_ms: int = 500
    interval_ms: int = 10_000
    timeout_ms: int = 30_000
    retained_max: int = 3
    pause_ms_min: int = 0
    log_retention_interval_ms: int = field(default=30_000, metadata={"key": "runway_interval_ms"})
    log_retention_warning_ms: int = field(default=21_600_000, metadata={"key": "runway_warning_ms"})
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    detached: bool = (
        False  # outlives the process that started it; stops by the command in the store
    )
