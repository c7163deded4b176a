"""`python -m tidegate.testing.plain_driver`: a driver process as in production, with the plain
engine.

TIDEGATE_TEST_METRICS_DELAY_S: how often it writes its figures. A test that pauses the process
(SIGSTOP) must not catch it inside a transaction for them: the embedded store has one writer at a
time.
"""

import os
import sys

from tidegate.driver import metrics
from tidegate.driver.main import EngineFactory, main
from tidegate.model.engine import DriverSpec
from tidegate.runner import scratch
from tidegate.runner.driver_spec import home_of
from tidegate.runner.process import process_ref
from tidegate.testing.plain_engine import PlainEngine


def warm_plain(order: DriverSpec) -> EngineFactory:
    """Ready at once; it keeps its place in the work directory as one with a JVM would."""
    me = process_ref(os.getpid())
    work = home_of(order).warm_work(me.pid, me.started)
    scratch.create(work)
    (work / "ready").touch()
    return lambda _order, _job: PlainEngine()


if __name__ == "__main__":
    if "TIDEGATE_TEST_METRICS_DELAY_S" in os.environ:
        metrics.HEARTBEAT_S = metrics.DELAY_S_MIN = float(
            os.environ["TIDEGATE_TEST_METRICS_DELAY_S"]
        )
    sys.exit(main(sys.argv[1:], lambda _order, _job: PlainEngine(), warm_plain))
