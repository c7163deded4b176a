"""`python -m tidegate.testing.plain_driver`: a driver process as in production, with the plain engine."""

import sys

from tidegate.driver.main import main
from tidegate.testing.plain_engine import PlainEngine

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], lambda _assignment, _job: PlainEngine()))
