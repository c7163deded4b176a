"""Replace what the product reads from its process (process name, randomness, failpoints) by the
simulation. Called by the simulated cluster.

One simulation at a time per process, in a process that does nothing else.
"""

import contextlib
import logging
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from tidegate import failpoint
from tidegate.coordinator import commands
from tidegate.driver import metrics, registration
from tidegate.model import document
from tidegate.model.plan import PipelinePlan
from tidegate.model.records import JobRecord
from tidegate.pipeline import attempts
from tidegate.pipeline.graph import Graph
from tidegate.store import follow
from tidegate.testing.failpoints import failpoint_names
from tidegate.testing.simulation import connectors as parts
from tidegate.testing.simulation.backend import document_of, forget_documents

T = TypeVar("T")
QUIET = ("tidegate.pipeline", "tidegate.driver")  # attempts that fail there are part of the play
Logged = Callable[[str, str, BaseException | None], None]
_records: dict[tuple[int, type], tuple[Mapping[str, Any], Any]] = {}
_read = document.from_document


def from_document(kind: type[T], data: Mapping[str, Any], what: str = "") -> T:
    """As the real one, but for each stored document only once: records are frozen, so they may be
    shared.
    """
    known = _records.get((id(data), kind))
    if known is not None:
        result: T = known[1]
        return result
    result = _read(kind, data, what)
    _records[id(data), kind] = (
        data,
        result,
    )  # the document is kept too, so that its id stays its own
    return result


class _LogHandler(logging.Handler):
    """Hears what is logged as an error."""

    def __init__(self, logged: Logged) -> None:
        super().__init__(logging.ERROR)
        self.logged = logged

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith(QUIET):
            self.logged(
                record.name, record.getMessage(), record.exc_info[1] if record.exc_info else None
            )


def prepare() -> None:
    """Once in a process, after everything is imported."""
    assert failpoint._armed is not None
    failpoint.arm(",".join(f"{name}=raise" for name in failpoint_names()))
    for name, module in list(sys.modules.items()):
        if (
            name.startswith("tidegate.")
            and module is not sys.modules[__name__]
            and getattr(module, _read.__name__, None) is _read
        ):
            setattr(module, _read.__name__, from_document)
    logger = logging.getLogger("tidegate")
    logger.setLevel(logging.ERROR)
    logger.propagate = False


class _SeededRandom:
    """In place of `secrets`, where a job gets its id."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def randbits(self, bits: int) -> int:
        return self.rng.getrandbits(bits)


@contextlib.contextmanager
def cluster(
    at: Callable[[str], None],
    target: parts.MemoryTarget,
    me: Callable[[], Any],
    rng: random.Random,
    logged: Logged,
) -> Iterator[None]:
    """Install the replacements for one simulation."""

    def build(job: JobRecord, plan: PipelinePlan) -> Graph:
        return parts.build(job, plan, target)

    ear = _LogHandler(logged)
    logging.getLogger("tidegate").addHandler(ear)
    replaced: dict[tuple[Any, str], Any] = {
        (failpoint, "_act"): at,
        (registration, "process_ref"): lambda _: me(),
        (metrics, "process_ref"): lambda _: me(),
        (attempts, "build"): build,
        (commands, "secrets"): _SeededRandom(rng),
        (follow, "decode"): lambda _map, _key, text: document_of(text),
    }
    before = {place: getattr(*place) for place in replaced}
    try:
        for (module, name), value in replaced.items():
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)
        logging.getLogger("tidegate").removeHandler(ear)
        _records.clear()
        forget_documents()
