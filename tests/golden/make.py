"""`python tests/golden/make.py`: checkpoints and a savepoint as this version writes them, into
tests/golden/<version>/.

Run once for each release, and committed: test_golden_state.py restores all of them for ever.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tidegate import __version__
from tidegate.home import Home
from tidegate.model.errors import TerminalError
from tidegate.pipeline.engine import Batch, Written
from tidegate.pipeline.graph import Graph
from tidegate.testing.in_process import run_in_process
from tidegate.testing.plain_engine import PlainEngine

HERE = Path(__file__).parent
# Relative paths: an operator is known by them, and the golden state is restored elsewhere.
JOB = """env { job.mode = "BATCH", job.name = "golden", checkpoint.interval = 10, batch.max-rows = 10, checkpoint.max-retained = 2, job.retry.times = 0 }
source {
  FakeSource { plugin_output = "a", row.num = 80, seed = 3, bigint.fake.mode = "SEQUENCE", schema { fields { id = bigint, name = string } } }
  Chaos { plugin_output = "b", row.num = 70 }
}
sink {
  LocalFile { plugin_input = "a", path = "files", file_format_type = "parquet" }
  Assert { plugin_input = "a", rules { row_rules = [{ rule_type = "MAX_ROW", rule_value = 80 }] } }
  Chaos { plugin_input = "b", path = "chaos" }
}
"""


class PowerCut(PlainEngine):
    """Ends the run: the batch after the fourth fails for good."""

    def run(self, graph: Graph, batch: Batch) -> Written:
        if batch.checkpoint > 4:
            raise TerminalError("the power is cut")
        return super().run(graph, batch)


def main() -> None:
    target = HERE / __version__
    if target.exists():
        sys.exit(f"{target} is there already: golden state is never made anew")
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        home, file = Home(Path(place, "home")), Path(place, "job.conf")
        file.write_text(JOB)
        run_in_process(str(file), home, PowerCut())
        run_in_process(str(file), home, PlainEngine(), restore="latest", save=True)
        shutil.copytree(home.checkpoints, target / "checkpoints")
        shutil.copy(file, target / "job.conf")


if __name__ == "__main__":
    main()
