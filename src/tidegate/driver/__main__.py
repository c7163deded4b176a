"""`python -m tidegate.driver`: composition root of a driver with the Spark engine."""

import sys

from tidegate.driver.main import main
from tidegate.driver.spark import spark_engine, warm_spark

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], spark_engine, warm_spark))
