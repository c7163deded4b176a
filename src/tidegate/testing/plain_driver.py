"""`python -m tidegate.testing.plain_driver`: a driver process as in production, with the plain engine.

TIDEGATE_TEST_METRICS_DELAY_S: how often it writes its figures. A test that pauses the process (SIGSTOP) must not catch it inside a transaction for them: the
embedded store has one writer at a time.
"""

import os
import sys

from tidegate.driver import metrics
from tidegate.driver.main import main
from tidegate.testing.plain_engine import PlainEngine

if __name__ == "__main__":
    metrics.DELAY_S = float(os.environ.get("TIDEGATE_TEST_METRICS_DELAY_S", metrics.DELAY_S))
    sys.exit(main(sys.argv[1:], lambda _assignment, _job: PlainEngine()))
