"""Run the tests except the soak: called by `make test`; arguments go to pytest.

Two lanes run side by side, as most tests wait for other processes: what computes, and what starts
Spark and servers. The first lane's output is printed when it has ended.

Tests that start and kill real processes on whatever machine is there get a second run, alone and in
a new process, if few failed. What passes only then is named at the end: it is a bug of the test or
of the product, but no reason to refuse a change that has nothing to do with it. Unit and contract
tests are never run twice.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LANES = (("unit", "contract", "databases", "simulation"), ("spark", "acceptance"))
STEADY = ("tests/unit/", "tests/contract/")
FEW = 5  # more failures than that are not chance
TESTS_FAILED = 1  # exit code of pytest; others mean that it could not run
NONE_COLLECTED = 5


class Lane:
    """One run of pytest with a cache of its own."""

    def __init__(self, number: int, folders: Sequence[str], options: Sequence[str]) -> None:
        self.folders = folders
        self.options = options
        self.cache = ROOT / ".pytest_cache" / f"lane-{number}"
        (self.cache / "v" / "cache" / "lastfailed").unlink(missing_ok=True)

    def start(self, output: int | None = None) -> "subprocess.Popen[bytes]":
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "not soak",
            "-o",
            f"cache_dir={self.cache}",
        ]
        return subprocess.Popen(
            [*command, *self.folders, *self.options], cwd=ROOT, stdout=output, stderr=output
        )

    def failed(self) -> list[str]:
        """The tests that failed in the last run."""
        path = self.cache / "v" / "cache" / "lastfailed"
        return sorted(json.loads(path.read_text())) if path.exists() else []


def lanes_of(arguments: Sequence[str]) -> list[Lane]:
    """One lane for what is in no tier, else one for each group of tiers that is asked for."""
    folders = [argument for argument in arguments if argument.startswith("tests/")]
    options = [argument for argument in arguments if argument not in folders]
    groups = [[f for f in folders if Path(f).parts[1] in lane] for lane in LANES]
    if not all(groups) or sum(map(len, groups)) != len(folders):
        return [Lane(0, folders, options)]
    return [Lane(number, group, options) for number, group in enumerate(groups)]


def run(lanes: Sequence[Lane]) -> list[int]:
    """The exit codes; the output of the last lane goes to the screen at once."""
    with tempfile.TemporaryFile() as kept:
        background = [lane.start(kept.fileno()) for lane in lanes[:-1]]
        codes = [lanes[-1].start().wait()]
        codes = [*(process.wait() for process in background), *codes]
        kept.seek(0)
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), kept.read())
    return [0 if code == NONE_COLLECTED else code for code in codes]


def main() -> int:
    """0 if all passed, at the second run at the latest."""
    lanes = lanes_of(sys.argv[1:])
    codes = run(lanes)
    failed = [
        (lane, lane.failed())
        for lane, code in zip(lanes, codes, strict=True)
        if code == TESTS_FAILED
    ]
    names = [name for _, found in failed for name in found]
    if any(code not in (0, TESTS_FAILED) for code in codes) or not 0 < len(names) <= FEW:
        return max(codes)
    print("\nFailed:", *names, sep="\n  ", flush=True)
    if any(name.startswith(STEADY) for name in names):
        return TESTS_FAILED
    print("\nA second run of what failed:", flush=True)
    again = max(Lane(9, found, lane.options).start().wait() for lane, found in failed)
    if again == 0:
        print("\nUNSTEADY, passed only at the second run:", *names, sep="\n  ", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main())
