"""Forks the Python workers of an executor: all that a task needs is imported once, before the fork.
Run by Spark (`spark.python.daemon.module`), local or not.

Two costs of every task go away: pyspark's daemon collects garbage after each task, which walks
every object of every imported module (30-40 ms) unless they are frozen; and before Spark 4.2 each
task reads the zip archives on sys.path again (about 100 ms), which nothing here needs.

Nothing may be printed: stdout is the wire to the JVM. An import that fails is left to the task that
needs it, so that its error reaches the driver.
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
    """Import what tasks use, connectors included; not those that work in the driver alone, by
    Spark's own SQL.
    """
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
    """pyspark itself is installed: its zip archives on the path are only slow copies."""
    if import_module("pyspark").__file__.endswith(".zip"):  # type: ignore[union-attr]  # a package always has a file
        return
    sys.path[:] = [place for place in sys.path if not place.endswith(".zip")]
    for place in [place for place in sys.path_importer_cache if ".zip" in place]:
        del sys.path_importer_cache[place]


if __name__ == "__main__":
    # First: on clusters pyspark may come from such an archive only, and then the path stays as it
    # is.
    archives = [place for place in sys.path if place.endswith(".zip")]
    sys.path[:] = [place for place in sys.path if not place.endswith(".zip")]
    try:
        import_module("pyspark")
    except ImportError:
        sys.path[:] = [*sys.path, *archives]
    preload()
    leave_out_archives()
    gc.collect()
    gc.freeze()
    import_module("pyspark.daemon").manager()
