"""Plans job files written as text, with the installed connectors."""

import pytest

from tidegate.config.load import read_text
from tidegate.model.plan import Plan
from tidegate.model.problem import Problem, Strictness
from tidegate.planner.plan import Planned, plan

SCHEMA = "schema { fields { id = bigint, name = string } }"


def fake(output: str = "", more: str = "") -> str:
    name = f"plugin_output = {output}" if output else ""
    return f"FakeSource {{ {name}\n {more}\n {SCHEMA} }}\n"


class Job:
    """Writes and plans job files."""

    fake = staticmethod(fake)

    def planned(self, text: str, *, strict: Strictness = Strictness.NORMAL) -> Planned:
        reading = read_text(text, "job.conf", strict=strict is Strictness.STRICT)
        assert reading.spec is not None, reading.problems
        return plan(reading.spec, strictness=strict)

    def of(
        self,
        *,
        source: str,
        sink: str,
        transform: str = "",
        env: str = "",
        strict: Strictness = Strictness.NORMAL,
    ) -> Planned:
        return self.planned(
            f"env {{ {env} }}\nsource {{\n{source}\n}}\ntransform {{\n{transform}\n}}\nsink"
            f" {{\n{sink}\n}}\n",
            strict=strict,
        )

    def good(self, **parts: str) -> Plan:
        planned = self.of(**parts)
        assert planned.errors == []
        assert planned.plan is not None
        return planned.plan

    def bad(self, **parts: str) -> list[Problem]:
        planned = self.of(**parts)
        assert planned.plan is None
        return planned.errors


@pytest.fixture
def job() -> Job:
    return Job()
