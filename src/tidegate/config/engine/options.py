"""Every key of the engine's file: its type, its bounds, and the setting that it is.

Callers: engine (reads by them), view (shows by them), the generated docs. Reads nothing. Defaults
are those of model/engine; `SEATUNNEL_DIFFERENCES` explains where they differ from SeaTunnel's.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tidegate.model.engine import EngineSettings, ScheduleStrategy
from tidegate.plugin.option import Option, OptionKind, OptionSet

STATE_URL = "state.url"
PLUGIN_CONFIG = "checkpoint.storage.plugin-config"
NAMESPACE = f"{PLUGIN_CONFIG}.namespace"
STORAGE_TYPE = "checkpoint.storage.type"
DYNAMIC_SLOT = "slot-service.dynamic-slot"
SLOT_NUM = "slot-service.slot-num"
HTTPS = "http.enable-https"
SPARK = "spark"


def value_at(settings: Any, field: str) -> Any:
    """Return a setting by its dotted name: `http.port`."""
    for name in field.split("."):
        settings = getattr(settings, name)
    return settings


def with_value(settings: Any, field: str, value: Any) -> Any:
    """Return the settings with one of them changed."""
    head, dot, rest = field.partition(".")
    return replace(
        settings, **{head: with_value(getattr(settings, head), rest, value) if dot else value}
    )


@dataclass(frozen=True, slots=True)
class Key:
    """A key and its setting; `field` is empty for a key that only controls others."""

    option: Option
    field: str

    @property
    def name(self) -> str:
        """The key in the file, without the root."""
        return self.option.key


def _key(key: str, kind: OptionKind, field: str, description: str, **more: Any) -> Key:
    if field and kind is not OptionKind.MAP:
        more["default"] = _plain(value_at(EngineSettings(), field))
    return Key(Option(key, kind, description, **more), field)


def _plain(default: Any) -> Any:
    """Format a default as in the file. An empty text is no default; 0 and false are."""
    return (
        str(default) if isinstance(default, StrEnum) else None if default in ("", ()) else default
    )


_STATE = (
    _key(
        STATE_URL,
        OptionKind.TEXT,
        "store_url",
        "where the state of all jobs is stored: `sqlite:///path` (one host), `postgresql://...` or"
        " `etcd://...` (several hosts); by default a file in the home",
        secret=True,
    ),
    _key(
        "state.compaction-threshold",
        OptionKind.INT,
        "compaction_threshold",
        "changes that the store keeps for clients that follow it",
        minimum=1,
    ),
    _key(
        "state.write-behind-delay",
        OptionKind.INT,
        "write_behind_ms",
        "milliseconds by which writing metrics may be delayed; they are also a driver's heartbeat,"
        " so it must be short",
        minimum=0,
        maximum=2_000,
    ),
    _key(
        "state-cleanup-delay-ms",
        OptionKind.LONG,
        "state_cleanup_delay_ms",
        "how long records of an ended job are kept for late reports",
        minimum=0,
    ),
    _key(
        "history-job-expire-minutes",
        OptionKind.INT,
        "history_expire_minutes",
        "how long an ended job stays in the history and can be resumed",
        minimum=1,
    ),
)

_CHECKPOINT = (
    _key(
        "checkpoint.interval",
        OptionKind.LONG,
        "checkpoint.interval_ms",
        "milliseconds between checkpoints of a streaming job whose env does not set it; by default"
        " 10000",
        minimum=10,
    ),
    _key(
        "checkpoint.timeout",
        OptionKind.LONG,
        "checkpoint.timeout_ms",
        "milliseconds for one checkpoint",
        minimum=10,
    ),
    _key(
        "checkpoint.min-pause",
        OptionKind.LONG,
        "checkpoint.pause_ms_min",
        "minimum milliseconds between two checkpoints; -1 is none",
        minimum=-1,
    ),
    _key(
        "checkpoint.tolerable-failure",
        OptionKind.INT,
        "checkpoint.tolerable_failures",
        "missed checkpoints in a row before a job counts as stalled",
        minimum=0,
    ),
    _key(
        "checkpoint.retain-after-job-cancelled",
        OptionKind.BOOL,
        "checkpoint.retain_after_cancel",
        "keep the checkpoints of a cancelled job, to resume it",
    ),
    _key(
        "checkpoint.runway-interval",
        OptionKind.LONG,
        "checkpoint.log_retention_interval_ms",
        "milliseconds between two queries of what a source still retains",
        minimum=100,
    ),
    _key(
        "checkpoint.runway-warning",
        OptionKind.LONG,
        "checkpoint.log_retention_warning_ms",
        "warn if a source will retain the data that the oldest retained checkpoint needs for fewer"
        " milliseconds than this",
        minimum=0,
    ),
    _key(
        "checkpoint.storage.max-retained",
        OptionKind.INT,
        "checkpoint.retained_max",
        "completed checkpoints to keep of each pipeline",
        minimum=1,
    ),
    _key(
        "checkpoint.orphan-ttl",
        OptionKind.INT,
        "checkpoint.orphan_ttl_minutes",
        "minutes until checkpoints of a job that is not in the store are moved to quarantine; 0:"
        " never",
        minimum=0,
    ),
    _key(
        "checkpoint.quarantine-delay",
        OptionKind.INT,
        "checkpoint.quarantine_minutes",
        "minutes for which checkpoints in quarantine can be restored",
        minimum=0,
    ),
    _key(
        "checkpoint.storage.quota-mb",
        OptionKind.INT,
        "checkpoint.quota_mb",
        "maximum size of the namespace, in millions of bytes; above it orphans are removed early,"
        " the oldest first. 0: no limit",
        minimum=0,
    ),
    _key(
        "checkpoint.storage.quota-warning-percent",
        OptionKind.INT,
        "checkpoint.quota_warning_percent",
        "percentage of the quota above which a warning is logged",
        minimum=1,
        maximum=100,
    ),
    _key(
        STORAGE_TYPE,
        OptionKind.TEXT,
        "checkpoint.storage_type",
        "`localfile`, `s3`, `gcs`, `oss`, or `hdfs`, which can mean any of the others, depending"
        " on `storage.type` or `fs.defaultFS` (`file:///`: local files)",
    ),
    _key(
        NAMESPACE,
        OptionKind.TEXT,
        "checkpoint.storage_root",
        "the directory for checkpoints: an absolute path (by default `checkpoints` in the home), a"
        " folder of the bucket, or a full address that fsspec supports",
    ),
    _key(
        PLUGIN_CONFIG,
        OptionKind.MAP,
        "checkpoint.storage_options",
        "settings of the storage: `s3.bucket`, `fs.s3a.endpoint`, `fs.s3a.access.key`,"
        " `fs.s3a.secret.key`, `fs.defaultFS`; `fsspec.<option>` for others",
    ),
)

_HTTP = (
    _key("http.enable-http", OptionKind.BOOL, "http.enabled", "serve the API"),
    _key(
        "http.host",
        OptionKind.TEXT,
        "http.host",
        "address to listen on; `0.0.0.0` for all addresses of the host",
    ),
    _key(
        "http.port",
        OptionKind.INT,
        "http.port",
        "port to listen on; 0 is any free one",
        minimum=0,
        maximum=65_535,
    ),
    _key(
        "http.enable-dynamic-port",
        OptionKind.BOOL,
        "http.dynamic_port",
        "use the next free port if the port is taken",
    ),
    _key(
        "http.port-range",
        OptionKind.INT,
        "http.port_range",
        "how many ports to try then",
        minimum=1,
        maximum=65_535,
    ),
    _key(
        "http.context-path",
        OptionKind.TEXT,
        "http.context_path",
        "prefix of every path: `/tidegate`",
    ),
    _key("http.enable-basic-auth", OptionKind.BOOL, "http.basic_auth", "require user and password"),
    _key("http.basic-auth-username", OptionKind.TEXT, "http.username", "the user"),
    _key("http.basic-auth-password", OptionKind.TEXT, "http.password", "the password", secret=True),
    _key(
        "http.enable-token-auth",
        OptionKind.BOOL,
        "http.tokens",
        "require a token (`tidegate token create`); always on if other hosts can connect",
    ),
    _key(
        HTTPS,
        OptionKind.BOOL,
        "http.https",
        "serve the API with https, on https-port, instead of http",
    ),
    _key(
        "http.https-port",
        OptionKind.INT,
        "http.https_port",
        "port to listen on with https",
        minimum=0,
        maximum=65_535,
    ),
    _key(
        "http.certificate-file",
        OptionKind.TEXT,
        "http.certificate",
        "PEM file with the server's certificate and the intermediate ones",
    ),
    _key(
        "http.private-key-file",
        OptionKind.TEXT,
        "http.private_key",
        "PEM file with the key of the certificate, without a pass phrase, readable only by its"
        " owner",
    ),
    _key(
        "http.client-authorities-file",
        OptionKind.TEXT,
        "http.client_authorities",
        "PEM file of authorities: clients must present a certificate of one of them",
    ),
    _key(
        "http.allowed-hosts",
        OptionKind.LIST,
        "http.allowed_hosts",
        "names, with or without a port, that requests may have in `Host`, besides loopback names"
        " and the address of the server; others are refused with 421, which prevents DNS rebinding"
        " by web pages",
    ),
    _key(
        "http.external-url",
        OptionKind.TEXT,
        "http.external_url",
        "`https://name[:port]` under which browsers reach this server through a proxy; its pages"
        " may change jobs, and its name is an allowed host",
    ),
    _key(
        "http.header-timeout-ms",
        OptionKind.INT,
        "http.header_timeout_ms",
        "milliseconds for the TLS handshake, and again for the headers of the first request; then"
        " the connection is closed",
        minimum=100,
        maximum=600_000,
    ),
    _key(
        "http.body-timeout-ms",
        OptionKind.INT,
        "http.body_timeout_ms",
        "milliseconds for the body of a request",
        minimum=100,
        maximum=3_600_000,
    ),
    _key(
        "http.keep-alive-timeout-ms",
        OptionKind.INT,
        "http.keep_alive_timeout_ms",
        "milliseconds that a connection may wait for its next request",
        minimum=0,
        maximum=600_000,
    ),
    _key(
        "http.max-connections",
        OptionKind.INT,
        "http.connections_max",
        "maximum open connections; 0: what the limit of descriptors allows after a reserve for"
        " drivers and the store. At the limit the connection that is idle longest is closed",
        minimum=0,
        maximum=1_000_000,
    ),
    _key(
        "http.max-connections-per-peer",
        OptionKind.INT,
        "http.connections_per_peer_max",
        "maximum open connections of one address (IPv6: one /64 network); 0: half of"
        " `max-connections`. Increase it behind a proxy",
        minimum=0,
        maximum=1_000_000,
    ),
)

_PROCESSES = (
    _key(
        "job-schedule-strategy",
        OptionKind.ENUM,
        "coordinator.schedule",
        "whether a job without a free slot waits or is refused",
        choices=tuple(strategy.value for strategy in ScheduleStrategy),
    ),
    _key(
        "coordinator.lease-ms",
        OptionKind.INT,
        "coordinator.lease_ms",
        "milliseconds without a heartbeat until another coordinator becomes leader",
        minimum=200,
    ),
    _key(
        "coordinator.start-timeout-ms",
        OptionKind.INT,
        "coordinator.start_timeout_ms",
        "milliseconds for a driver to start",
        minimum=1_000,
    ),
    _key(
        "coordinator.stop-timeout-ms",
        OptionKind.INT,
        "coordinator.stop_timeout_ms",
        "milliseconds for each step of a stop",
        minimum=100,
    ),
    _key(
        "worker.lease-ms",
        OptionKind.INT,
        "worker.lease_ms",
        "milliseconds without a heartbeat until a worker counts as lost",
        minimum=200,
    ),
    _key(
        "worker.tags",
        OptionKind.MAP,
        "worker.tags",
        "attributes of this worker that a job's `tag_filter` can require",
    ),
    _key(
        DYNAMIC_SLOT,
        OptionKind.BOOL,
        "",
        "run as many jobs at a time on a worker as its memory allows; false: `slot-num`",
        default=True,
    ),
    _key(
        SLOT_NUM,
        OptionKind.INT,
        "worker.slots",
        "jobs at a time on a worker if `dynamic-slot` is false; by default 2 for each core",
        minimum=1,
    ),
    _key(
        "driver.warm",
        OptionKind.INT,
        "worker.warm",
        "idle drivers with a started JVM on each worker",
        minimum=0,
        maximum=64,
    ),
    _key(
        "event-report-http.url",
        OptionKind.TEXT,
        "events.url",
        "URL to which job state changes are sent by POST",
    ),
    _key(
        "event-report-http.headers",
        OptionKind.MAP,
        "events.headers",
        "headers of these requests",
        secret=True,
    ),
    _key(
        "event-report-http.report-non-terminal-job-state",
        OptionKind.BOOL,
        "events.non_terminal",
        "report every change, not only the end of a job",
        fallbacks=("report-non-terminal-job-state",),
    ),
)

KEYS: tuple[Key, ...] = (*_STATE, *_CHECKPOINT, *_HTTP, *_PROCESSES)
OPTIONS = OptionSet(tuple(key.option for key in KEYS))

# Accepted without effect, logged once at start: the key (or the block, with all below it) and why.
IGNORED: dict[str, str] = {
    "backup-count": "the store has its own replication",
    "queue-type": "rows do not pass through queues",
    "print-execution-info-interval": "the API and the metrics show it at any time",
    "print-job-metrics-info-interval": "the API and the metrics show it at any time",
    "job-metrics-backup-interval": "`state.write-behind-delay` decides",
    "job-metrics-partition-count": "every pipeline has a record of its own",
    "health-metrics-timeout-seconds": "metrics are read from the store",
    "task_execution_thread_share_mode": "Spark runs the tasks",
    "slot-service.slot-allocate-strategy": "the coordinator chooses the worker",
    "slot-service.slot-allocation-strategy": "the coordinator chooses the worker",
    "classloader-cache-mode": "there are no class loaders to share",
    "coordinator-service": "the coordinator has no pool of threads",
    "checkpoint.max-concurrent": "one checkpoint at a time",
    "checkpoint.schema-change-timeout": "a change of schema has no checkpoint of its own",
    "checkpoint.restore-progress-timeout": "deadlines are always on",
    "checkpoint.restore-progress-fail-fast": "deadlines are always on",
    "http.key-store-path": (
        "PEM files replace it: certificate-file, private-key-file, client-authorities-file"
    ),
    "http.key-store-password": (
        "PEM files replace it: certificate-file, private-key-file, client-authorities-file"
    ),
    "http.key-manager-password": (
        "PEM files replace it: certificate-file, private-key-file, client-authorities-file"
    ),
    "http.trust-store-path": (
        "PEM files replace it: certificate-file, private-key-file, client-authorities-file"
    ),
    "http.trust-store-password": (
        "PEM files replace it: certificate-file, private-key-file, client-authorities-file"
    ),
    "http.upload-max-file-size-mb": "the limit is fixed",
    "http.upload-max-request-size-mb": "the limit is fixed",
    "http.log-response-max-size-mb": "the limit is fixed",
    "telemetry": "metrics are always on",
    "jar-storage": "jars belong to connectors",
    "timer-flush-pool-size": "every checkpoint flushes the sinks",
    "stain-trace": "there are no stain traces",
    "metadata": "there is no external metadata centre",
    "managed-source-runtime": "Spark runs the sources",
    "map": "`state.url` determines where the state is stored",
    "map-store": "`state.url` determines where the state is stored",
}

# Why a default differs from SeaTunnel's.
SEATUNNEL_DIFFERENCES: dict[str, str] = {
    "job-schedule-strategy": (
        "WAIT, not REJECT: a job that is submitted during a failover must not fail for it."
    ),
    "checkpoint.retain-after-job-cancelled": "true, not false: every stop can be resumed.",
    "checkpoint.storage.max-retained": "3, as in the packaged file, not 20.",
    "checkpoint.interval": "10 s, as in the packaged file, not 5 minutes.",
    "checkpoint.tolerable-failure": "Supported; SeaTunnel ignores it.",
    "http.enable-http": "true, as in the packaged file.",
    "http.host": (
        "Not a key of SeaTunnel: submitting a job means running code, so only this host can reach"
        " the API by default."
    ),
}


def ignored_by(key: str) -> str:
    """Return the entry of IGNORED that a key belongs to, or an empty text.

    Keys of the stain trace are written with and without a block.
    """
    if key.startswith("stain-trace"):
        return "stain-trace"
    return next((name for name in IGNORED if key == name or key.startswith(f"{name}.")), "")
