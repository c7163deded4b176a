"""What was measured, and how it is shown: a table for people, JSON for machines. Filled by parts.py
and starts.py.

Ratios are what counts; seconds are of one machine on one day.
"""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One line. `ratio` is against the line that `against` names; `aim` is what the ratio or the
    value should be.
    """

    part: str
    name: str
    value: float
    unit: str
    spread: tuple[float, float] | None = None
    cpu_s: float | None = None
    against: str = ""
    ratio: float | None = None
    aim: str = ""
    met: bool | None = None
    rss_mib: int | None = None
    uss_mib: int | None = None


@dataclass(slots=True)
class Report:
    """All figures of a run, with what the machine was doing."""

    command: str
    figures: list[Figure] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        """Keep it, and show it at once."""
        self.figures.append(figure)
        self.loads.append(os.getloadavg()[0])
        print(_line(figure), flush=True)

    def text(self) -> str:
        """Everything, for the end of a run."""
        load = f"{min(self.loads):.1f} to {max(self.loads):.1f}" if self.loads else "unknown"
        machine = (
            f"{platform.platform(terse=True)}, Python {platform.python_version()}, {os.cpu_count()}"
            f" cores, load {load} while measuring"
        )
        unmet = [f"{f.part}: {f.name}" for f in self.figures if f.met is False]
        lines = [
            self.command,
            machine,
            "",
            HEADER,
            *map(_line, self.figures),
            "",
            f"aims not met: {', '.join(unmet) or 'none'}",
        ]
        return "\n".join(lines)

    def as_json(self) -> str:
        return json.dumps(
            {
                "command": self.command,
                "loads": self.loads,
                "figures": [asdict(f) for f in self.figures],
            },
            indent=1,
        )


HEADER = (
    f"{'part':6} {'what':62} {'median':>9} {'':4} {'from - to':>15} {'CPU s':>6} {'ratio':>6} "
    f" {'against':30} {'aim':14} {'met':4} {'RSS/USS MiB':>11}"
)


def _line(f: Figure) -> str:
    spread = f"{f.spread[0]:.3g} - {f.spread[1]:.3g}" if f.spread else ""
    ratio = f"{f.ratio:.2f}x" if f.ratio is not None else ""
    cpu = f"{f.cpu_s:.1f}" if f.cpu_s is not None else ""
    met = {True: "yes", False: "no", None: ""}[f.met]
    memory = f"{f.rss_mib}/{f.uss_mib}" if f.rss_mib else ""
    return (
        f"{f.part:6} {f.name:62} {f.value:9.3g} {f.unit:4} {spread:>15} {cpu:>6} {ratio:>6} "
        f" {f.against:30} {f.aim:14} {met:4} {memory:>11}"
    )


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
