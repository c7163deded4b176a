"""What must stay out of a process that only commands: the JVM's Python and the heavy libraries are
the driver's.
"""

import subprocess
import sys

HEAVY = ("pyspark", "py4j", "pyarrow", "pandas", "numpy")


def heavy_after(statement: str, root) -> list[str]:
    code = f"import sys\n{statement}\nprint(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=root / "src", capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.split()


def test_the_command_line_starts_without_spark_and_arrow(tree) -> None:
    assert heavy_after("import tidegate.cli", tree.root) == []


def test_a_heavy_import_is_seen(tree) -> None:
    assert heavy_after("import numpy", tree.root) == ["numpy"]
