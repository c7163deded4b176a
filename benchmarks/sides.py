"""The processes that are measured, seen from the one that measures. Called by parts.py."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.memory import PeakMemory, cpu_s

ROOT = Path(__file__).parent.parent


class Trouble(Exception):
    """A side did not do what it was asked; the text says where its words are."""


def environ() -> dict[str, str]:
    """What every measured process gets."""
    path = [str(ROOT / "src"), str(ROOT)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "SPARK_LOCAL_IP": "127.0.0.1"}


class Side:
    """A warm process that answers requests."""

    def __init__(
        self, place: Path, module: str, *arguments: str, python: str = sys.executable
    ) -> None:
        self.work = Path(tempfile.mkdtemp(prefix=f"{module}-", dir=place))
        self.said = self.work / "said.log"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [python, "-m", f"benchmarks.{module}", str(self.work), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=environ(),
                cwd=self.work,  # some write logs where they are
            )
        self._answer()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Do this, and tell what came of it."""
        assert self.process.stdin is not None
        before_s = cpu_s(self.process.pid)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return {**self._answer(), "cpu_s": cpu_s(self.process.pid) - before_s}

    def peak(self, **request: Any) -> PeakMemory:
        """The memory while it does this."""
        with PeakMemory(self.process.pid) as peak:
            self.ask(**request)
        return peak

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Trouble(
                "a side of the benchmark ended; its last words:"
                f" {self.said.read_text(errors='replace')[-500:]}"
            )
        answer: dict[str, Any] = json.loads(line)
        if answer.get("status", "FINISHED") != "FINISHED":
            raise Trouble(
                f"a run ended as {answer['status']}; the last words of its side:"
                f" {self.said.read_text(errors='replace')[-1500:]}"
            )
        return answer

    def __enter__(self) -> "Side":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def raw(place: Path) -> Side:
    return Side(place, "raw_side")


def ours(place: Path, *, light: bool) -> Side:
    """Tidegate; `light` as its driver would choose for jobs without SQL."""
    return Side(place, "tidegate_side", "light" if light else "full")
