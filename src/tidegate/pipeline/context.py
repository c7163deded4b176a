"""What a batch loop works with. Made by the driver, one for each pipeline."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.checkpoints.storage import CheckpointStorage
from tidegate.clock import Clock
from tidegate.model.plan import Action
from tidegate.model.records import JobRecord
from tidegate.pipeline.engine import Engine
from tidegate.pipeline.savepoints import NoSavepoints, SavepointCoordinator
from tidegate.plugin.contract import ResourceRegistry


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineContext:
    """The job, the services and the settings of a batch loop.

    Setting `stop` makes the loop end at the next checkpoint.
    """

    job: JobRecord
    storage: CheckpointStorage
    engine: Engine
    clock: Clock
    stop: threading.Event
    retained_max: int
    interval_s: float
    savepoints: SavepointCoordinator | NoSavepoints
    # records what operators create outside; None where nothing is recorded
    resource_registry: Callable[[Action], ResourceRegistry] | None = None
    installation: str = ""  # the id of the store
