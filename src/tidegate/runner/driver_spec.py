"""What a driver is told, made from the engine's settings, and as the line that it reads.

Called by whoever starts drivers, and by the driver.
"""

import json
import os
from pathlib import Path

from tidegate.home import Home
from tidegate.model.document import from_document, to_document
from tidegate.model.engine import DriverSpec, EngineSettings

STREAMING_INTERVAL_MS = 10_000
ORDER_BYTES_MAX = 4 * 1024 * 1024
INTERRUPT = b"!"  # after the order, on the same pipe: give the running batches up, and end


def driver_spec(
    settings: EngineSettings,
    home: Home,
    *,
    job_id: int,
    generation: int,
    worker: str = "",
    detached: bool = False,
) -> DriverSpec:
    """The order for one generation: the engine's defaults, over which the job's env wins in the
    driver.
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
        runway_interval_ms=checkpoint.runway_interval_ms,
        runway_warning_ms=checkpoint.runway_warning_ms,
        spark=settings.spark,
        detached=detached,
    )


def home_of(order: DriverSpec) -> Home:
    """The installation that the order is about."""
    return Home(Path(order.home))


def encode(order: DriverSpec) -> bytes:
    return json.dumps(to_document(order)).encode() + b"\n"


def send(order: DriverSpec, descriptor: int) -> None:
    """Write the line, all of it. A reader that has died is no error here: its end tells."""
    rest = encode(order)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except BrokenPipeError:
        return


def receive(descriptor: int) -> DriverSpec | None:
    """Read one line; None where the other end closes before it is whole. What comes after the line
    is left alone.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        part = os.read(
            descriptor, 1
        )  # one by one: nothing after the line may be taken away from whoever reads next
        if not part or len(line) > ORDER_BYTES_MAX:
            return None
        line += part
    return from_document(DriverSpec, json.loads(line), "the driver's order")
