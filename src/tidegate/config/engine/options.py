"""Every key of the engine's file as data: its type, its bounds, and which setting it is. The
defaults are those of model/engine.

Callers: engine (reads by them), engine_view (shows by them), the reference docs. Reads nothing.
Where a default is not the reference's, `DIFFERENCES` says why.
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
    """A setting by its dotted name: `http.port`."""
    for name in field.split("."):
        settings = getattr(settings, name)
    return settings


def with_value(settings: Any, field: str, value: Any) -> Any:
    """The settings with one of them changed."""
    head, dot, rest = field.partition(".")
    return replace(
        settings, **{head: with_value(getattr(settings, head), rest, value) if dot else value}
    )


@dataclass(frozen=True, slots=True)
class Key:
    """A key and the setting it is; `field` is empty for a key that only decides over others."""

    option: Option
    field: str

    @property
    def name(self) -> str:
        """As it stands in the file, without the root."""
        return self.option.key


def _key(key: str, kind: OptionKind, field: str, description: str, **more: Any) -> Key:
    if field and kind is not OptionKind.MAP:
        more["default"] = _plain(value_at(EngineSettings(), field))
    return Key(Option(key, kind, description, **more), field)


def _plain(default: Any) -> Any:
    """As it would stand in the file. No text is no default; 0 and false are."""
    return (
        str(default) if isinstance(default, StrEnum) else None if default in ("", ()) else default
    )


_STATE = (
    _key(
        STATE_URL,
        OptionKind.TEXT,
        "store_url",
        "where the state of all jobs is kept: `sqlite:///path` (one host), `postgresql://...` or"
        " `etcd://...` (several hosts); the home's own file without it",
        secret=True,
    ),
    _key(
        "state.compaction-threshold",
        OptionKind.INT,
        "compaction_threshold",
        "changes that the store keeps for those who follow it",
        minimum=1,
    ),
    _key(
        "state.write-behind-delay",
        OptionKind.INT,
        "write_behind_ms",
        "milliseconds that metrics may wait to be written; they are a driver's sign of life, so it"
        " cannot be long",
        minimum=0,
        maximum=2_000,
    ),
    _key(
        "state-cleanup-delay-ms",
        OptionKind.LONG,
        "state_cleanup_delay_ms",
        "how long the traces of an ended job stay, so that late reports find them",
        minimum=0,
    ),
    _key(
        "history-job-expire-minutes",
        OptionKind.INT,
        "history_expire_minutes",
        "how long an ended job is in the history and can be resumed",
        minimum=1,
    ),
)

_CHECKPOINT = (
    _key(
        "checkpoint.interval",
        OptionKind.LONG,
        "checkpoint.interval_ms",
        "milliseconds between checkpoints of a streaming job whose env gives none; 10000 where the"
        " file gives none either",
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
        "milliseconds at least between two checkpoints; -1 is none",
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
        "checkpoint.runway_interval_ms",
        "milliseconds between two questions to a source what it still holds",
        minimum=100,
    ),
    _key(
        "checkpoint.runway-warning",
        OptionKind.LONG,
        "checkpoint.runway_warning_ms",
        "warn where a source will hold what the oldest retained checkpoint needs for fewer"
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
        "minutes that state of a job that the store has forgotten stays, before it is put into"
        " quarantine; 0: for ever",
        minimum=0,
    ),
    _key(
        "checkpoint.quarantine-delay",
        OptionKind.INT,
        "checkpoint.quarantine_minutes",
        "minutes that state in quarantine can be taken back",
        minimum=0,
    ),
    _key(
        "checkpoint.storage.quota-mb",
        OptionKind.INT,
        "checkpoint.quota_mb",
        "how big the namespace may be, in millions of bytes; above it orphans go before their time,"
        " the oldest first. 0: no limit",
        minimum=0,
    ),
    _key(
        "checkpoint.storage.quota-warning-percent",
        OptionKind.INT,
        "checkpoint.quota_warning_percent",
        "from which part of the quota on it is warned",
        minimum=1,
        maximum=100,
    ),
    _key(
        STORAGE_TYPE,
        OptionKind.TEXT,
        "checkpoint.storage_type",
        "`localfile`, `s3`, `gcs`, `oss`, or `hdfs`, which also stands for the others, as"
        " `storage.type` or `fs.defaultFS` say (`file:///`: local files)",
    ),
    _key(
        NAMESPACE,
        OptionKind.TEXT,
        "checkpoint.storage_root",
        "the directory for checkpoints: an absolute path (`checkpoints` in the home without it), a"
        " folder of the bucket, or a whole address that fsspec knows",
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
        "address to listen on; `0.0.0.0` for all of the host's",
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
        "take the next free port where the port is taken",
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
        "path in front of every address: `/tidegate`",
    ),
    _key("http.enable-basic-auth", OptionKind.BOOL, "http.basic_auth", "ask for user and password"),
    _key("http.basic-auth-username", OptionKind.TEXT, "http.username", "the user"),
    _key("http.basic-auth-password", OptionKind.TEXT, "http.password", "the password", secret=True),
    _key(
        "http.enable-token-auth",
        OptionKind.BOOL,
        "http.tokens",
        "ask for a token (`tidegate token create`); always on where others than this host can come",
    ),
    _key(
        HTTPS,
        OptionKind.BOOL,
        "http.https",
        "serve the API by https, on https-port, and not by http",
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
        "PEM file with the server's certificate, and those between it and its authority",
    ),
    _key(
        "http.private-key-file",
        OptionKind.TEXT,
        "http.private_key",
        "PEM file with the key of the certificate, without a pass phrase, for its owner only",
    ),
    _key(
        "http.client-authorities-file",
        OptionKind.TEXT,
        "http.client_authorities",
        "PEM file of authorities: clients must show a certificate of one of them",
    ),
    _key(
        "http.allowed-hosts",
        OptionKind.LIST,
        "http.allowed_hosts",
        "names, with or without a port, that requests may have in `Host`, besides loopback names"
        " and the address of the server; others are refused with 421, so that no web page can point"
        " a name of its own at this server",
    ),
    _key(
        "http.external-url",
        OptionKind.TEXT,
        "http.external_url",
        "`https://name[:port]` under which browsers reach this server through a proxy; its pages"
        " may act, and its name is an allowed host",
    ),
    _key(
        "http.header-timeout-ms",
        OptionKind.INT,
        "http.header_timeout_ms",
        "milliseconds for the TLS handshake, and again for the head of the first request; then the"
        " connection is closed",
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
        "open connections at most; 0: what the limit of descriptors allows after a reserve for"
        " drivers and the store. At the limit the oldest one that waits for a request is closed",
        minimum=0,
        maximum=1_000_000,
    ),
    _key(
        "http.max-connections-per-peer",
        OptionKind.INT,
        "http.connections_per_peer_max",
        "open connections of one address (IPv6: one /64 network) at most; 0: half of"
        " `max-connections`. Raise it behind a proxy",
        minimum=0,
        maximum=1_000_000,
    ),
)

_PROCESSES = (
    _key(
        "job-schedule-strategy",
        OptionKind.ENUM,
        "coordinator.schedule",
        "what becomes of a job that finds no slot: it waits, or it is refused",
        choices=tuple(strategy.value for strategy in ScheduleStrategy),
    ),
    _key(
        "coordinator.lease-ms",
        OptionKind.INT,
        "coordinator.lease_ms",
        "milliseconds without a sign of life until another coordinator takes the lead",
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
        "milliseconds without a sign of life until a worker counts as gone",
        minimum=200,
    ),
    _key(
        "worker.tags",
        OptionKind.MAP,
        "worker.tags",
        "what this worker is; a job's `tag_filter` asks for it",
    ),
    _key(
        DYNAMIC_SLOT,
        OptionKind.BOOL,
        "",
        "as many jobs at a time on a worker as its memory allows; false: `slot-num`",
        default=True,
    ),
    _key(
        SLOT_NUM,
        OptionKind.INT,
        "worker.slots",
        "jobs at a time on a worker, where `dynamic-slot` is false; 2 for each core without it",
        minimum=1,
    ),
    _key(
        "driver.warm",
        OptionKind.INT,
        "worker.warm",
        "drivers that wait on each worker with a started JVM",
        minimum=0,
        maximum=64,
    ),
    _key(
        "event-report-http.url",
        OptionKind.TEXT,
        "events.url",
        "where changes of jobs are reported by POST",
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

# Accepted, without a meaning here, named once at start: the key (or the block, with all below it)
# and why.
IGNORED: dict[str, str] = {
    "backup-count": "the store keeps its own copies",
    "queue-type": "rows do not pass through queues",
    "print-execution-info-interval": "the API and the metrics tell at any time",
    "print-job-metrics-info-interval": "the API and the metrics tell at any time",
    "job-metrics-backup-interval": "`state.write-behind-delay` decides",
    "job-metrics-partition-count": "every pipeline has a record of its own",
    "health-metrics-timeout-seconds": "nobody is asked for metrics: they are in the store",
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
        "PEM files stand in its place: certificate-file, private-key-file, client-authorities-file"
    ),
    "http.key-store-password": (
        "PEM files stand in its place: certificate-file, private-key-file, client-authorities-file"
    ),
    "http.key-manager-password": (
        "PEM files stand in its place: certificate-file, private-key-file, client-authorities-file"
    ),
    "http.trust-store-path": (
        "PEM files stand in its place: certificate-file, private-key-file, client-authorities-file"
    ),
    "http.trust-store-password": (
        "PEM files stand in its place: certificate-file, private-key-file, client-authorities-file"
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
    "map": "`state.url` is where the state is kept",
    "map-store": "`state.url` is where the state is kept",
}

# Where a default is not the one of the reference: why.
DIFFERENCES: dict[str, str] = {
    "job-schedule-strategy": (
        "WAIT, not REJECT: a job that is submitted during a failover must not fail for it."
    ),
    "checkpoint.retain-after-job-cancelled": "true, not false: every stop can be resumed.",
    "checkpoint.storage.max-retained": "3, as in the packaged file, not 20.",
    "checkpoint.interval": "10 s, as in the packaged file, not 5 minutes.",
    "checkpoint.tolerable-failure": "Understood; elsewhere it is ignored.",
    "http.enable-http": "true, as in the packaged file.",
    "http.host": (
        "A key of ours: who submits a job runs code, so only this host can reach the API unless the"
        " file says otherwise."
    ),
}


def ignored_by(key: str) -> str:
    """The entry of IGNORED that a key falls under, or nothing.

    Keys of the stain trace are written with and without a block.
    """
    if key.startswith("stain-trace"):
        return "stain-trace"
    return next((name for name in IGNORED if key == name or key.startswith(f"{name}.")), "")
