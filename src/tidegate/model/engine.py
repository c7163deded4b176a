"""The engine's settings: what a server, a worker and a driver run with. Made by config/engine from
the engine's file; everything has a working default.

What can hold a password is left out of `repr`, so that settings may be logged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ScheduleStrategy(StrEnum):
    """What becomes of a job that finds no slot."""

    WAIT = "WAIT"
    REJECT = "REJECT"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointSettings:
    """Defaults of checkpoints; a job's env wins."""

    interval_ms: int | None = None  # None: 10 s for streaming jobs, a single batch for BATCH jobs
    timeout_ms: int = 30_000
    pause_ms_min: int = 0
    retained_max: int = 3
    retain_after_cancel: bool = True
    tolerable_failures: int = 0
    orphan_ttl_minutes: int = 10_080  # 0: orphans stay for ever
    quarantine_minutes: int = 1_440
    quota_mb: int = 0  # 0: none
    quota_warning_percent: int = 80
    runway_interval_ms: int = 30_000
    runway_warning_ms: int = 21_600_000
    storage_type: str = "localfile"
    storage_root: str = ""  # an absolute path or an address; empty: below the home
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
    password: str = field(
        default="admin", repr=False
    )  # as the reference; only used with basic_auth
    # ask for a token; always where the API can be reached from elsewhere and nothing else is asked
    # for
    tokens: bool = False
    https: bool = False
    https_port: int = 8443
    certificate: str = ""  # PEM files
    private_key: str = ""
    client_authorities: str = (
        ""  # with it, clients must show a certificate that one of these has signed
    )
    allowed_hosts: tuple[
        str, ...
    ] = ()  # names in Host besides the bound, the announced and loopback ones
    external_url: str = ""  # how browsers reach it through a proxy
    header_timeout_ms: int = (
        10_000  # from the connection to the whole head of a request, the TLS handshake included
    )
    body_timeout_ms: int = 60_000
    keep_alive_timeout_ms: int = 5_000
    connections_max: int = 0  # 0: as many as the descriptors of the process allow
    connections_per_peer_max: int = 0  # 0: half of them

    @property
    def reachable(self) -> bool:
        """Whether others than this host may come."""
        return not (self.host.startswith("127.") or self.host in ("localhost", "::1", "[::1]"))

    @property
    def guarded(self) -> bool:
        """Whether callers must say who they are."""
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
    warm: int = 0  # drivers that wait with a started JVM


@dataclass(frozen=True, kw_only=True, slots=True)
class EventSettings:
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    non_terminal: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """Everything. `store_url` empty: the embedded store of the home."""

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
    """All that a driver process is told, as one JSON line on its standard input: nothing of it is
    on a command line or in an environment.
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
    runway_interval_ms: int = 30_000
    runway_warning_ms: int = 21_600_000
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    detached: bool = False  # outlives whoever started it; stops by the order in the store
