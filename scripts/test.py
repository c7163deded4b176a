"""Runs the tests but for the soak, and what failed once more by itself: called by `make test`; arguments go to pytest.

Hundreds of these tests start and kill real processes on whatever machine is there. The second look, in a new process and without what ran before, tells a
fault from a test that depends on its neighbours or on luck. What passes only then is named at the end: it is a bug to be worked on, of the test or of the
product, but no reason to throw away a change that has nothing to do with it. What is wrong for certain fails twice.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
FEW = 5  # more than that is no matter of luck
TESTS_FAILED = 1  # pytest's own word for it; others mean that it could not do its work


def pytest(*arguments: str) -> int:
    """Its exit code; what it has to say goes to the screen."""
    return subprocess.run([sys.executable, "-m", "pytest", "-m", "not soak", *arguments], cwd=ROOT, check=False).returncode


def main() -> int:
    """0 when all passed, at the second look at the latest."""
    FAILED.unlink(missing_ok=True)
    code = pytest(*sys.argv[1:])
    failed = sorted(json.loads(FAILED.read_text())) if code == TESTS_FAILED and FAILED.exists() else []
    if not 0 < len(failed) <= FEW:
        return code
    print(f"\nA second look at {len(failed)} that failed:", flush=True)
    again = pytest("--last-failed", *sys.argv[1:])
    if again == 0:
        print("\nUNSTEADY, passed only at the second look:", *failed, sep="\n  ", flush=True)
    return again


if __name__ == "__main__":
    sys.exit(main())
