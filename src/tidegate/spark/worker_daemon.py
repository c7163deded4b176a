"""Fork the Python workers of an executor, with everything that tasks need already imported.

Started by Spark (`spark.python.daemon.module`), in local mode too. It avoids two costs of every
task: pyspark's daemon collects garbage after each task, which walks every object of every imported
module (30-40 ms) unless they are frozen; and before Spark 4.2 each task reads the zip archives on
sys.path again (about 100 ms), which nothing here needs.

Nothing may be printed, because stdout is the connection to the JVM. An import that fails is left to
the task that needs it, so that its error reaches the driver.
"""

import gc
import sys
from contextlib import suppress
from importlib import import_module

PRELOADED = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.csv",
    "pyarrow.json",
    "pyarrow.orc",
    "pyarrow.parquet",
    "pyspark.core.files",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "pyspark.worker",
    "tidegate.spark.tasks",
)


def preload() -> None:
    """Import what tasks use, also connectors, except those that use only Spark's SQL."""
    for name in PRELOADED:
        with suppress(Exception):
            import_module(name)
    with suppress(Exception):
        from tidegate.plugin.registry import connectors

        for module in {
            c.implementation.partition(":")[0]
            for c in connectors()
            if c.capabilities.fusable or not c.spark
        }:
            with suppress(Exception):
                import_module(module)


def leave_out_archives() -> None:
    """Remove pyspark's zip archives from the path if pyspark itself is installed."""
    if str(import_module("pyspark").__file__).endswith(".zip"):
        return
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]
    for entry in [entry for entry in sys.path_importer_cache if ".zip" in entry]:
        del sys.path_importer_cache[entry]


if __name__ == "__main__":
    # on some clusters pyspark exists only as such an archive: then the path is not changed
    archives = [entry for entry in sys.path if entry.endswith(".zip")]
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]
    try:
        import_module("pyspark")
    except ImportError:
        sys.path[:] = [*sys.path, *archives]
    preload()
    leave_out_archives()
    gc.collect()
    gc.freeze()
    import_module("pyspark.daemon").manager()
