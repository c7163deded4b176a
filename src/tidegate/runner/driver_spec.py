"""Builds the DriverSpec from the engine's settings, and sends and receives it as one line.

Called by the starters of drivers, and by the driver.
"""

import json
import os
from pathlib import Path

from tidegate.home import Home
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import DriverSpec, EngineSettings

STREAMING_INTERVAL_MS = 10_000
SPEC_BYTES_MAX = 4 * 1024 * 1024
INTERRUPT = b"!"  # after the spec, on the same pipe: cancel the running batches, and exit


def driver_spec(
    settings: EngineSettings,
    home: Home,
    *,
    job_id: int,
    generation: int,
    worker: str = "",
    detached: bool = False,
) -> DriverSpec:
    """Build the spec of one generation.

    It has the engine's defaults; in the driver the job's env overrides them.
    """
    checkpoint = settings.checkpoint
    return DriverSpec(
        home=str(home.root),
        job_id=job_id,
        generation=generation,
        worker=worker,
        store_url=settings.store_url or home.store_url,
        checkpoints_root=checkpoint.storage_root or str(home.checkpoints),
        storage_options=checkpoint.storage_options,
        compaction_threshold=settings.compaction_threshold,
        write_behind_ms=settings.write_behind_ms,
        interval_ms=checkpoint.interval_ms or STREAMING_INTERVAL_MS,
        timeout_ms=checkpoint.timeout_ms,
        retained_max=checkpoint.retained_max,
        pause_ms_min=checkpoint.pause_ms_min,
        log_retention_interval_ms=checkpoint.log_retention_interval_ms,
        log_retention_warning_ms=checkpoint.log_retention_warning_ms,
        spark=settings.spark,
        detached=detached,
    )


def home_of(spec: DriverSpec) -> Home:
    """The installation that the spec belongs to."""
    return Home(Path(spec.home))


def encode(spec: DriverSpec) -> bytes:
    return json.dumps(to_document(spec)).encode() + b"\n"


def send(spec: DriverSpec, descriptor: int) -> None:
    """Write the whole line.

    A dead reader is no error here, because its exit is detected elsewhere.
    """
    rest = encode(spec)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except BrokenPipeError:
        return


def receive(descriptor: int) -> DriverSpec | None:
    """Read one line and nothing after it; None if the other end closes before it is complete."""
    line = bytearray()
    while not line.endswith(b"\n"):
        part = os.read(descriptor, 1)  # byte by byte, to leave what follows to the next reader
        if not part or len(line) > SPEC_BYTES_MAX:
            return None
        line += part
    return from_document(DriverSpec, json.loads(line), "the driver's order")
