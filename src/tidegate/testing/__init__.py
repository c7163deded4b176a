"""The public test kit: parts that fail on purpose, contract suites for backends, in-process
stand-ins. Production never imports it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.testing.in_process import Ran, run_in_process
    from tidegate.testing.plain_engine import PlainEngine

__all__ = ["PlainEngine", "Ran", "run_in_process"]


def __getattr__(name: str) -> Any:
    """Import on first use: the servers of the kit must not load the engine."""
    if name == "PlainEngine":
        from tidegate.testing.plain_engine import PlainEngine

        return PlainEngine
    if name in ("Ran", "run_in_process"):
        from tidegate.testing import in_process

        return getattr(in_process, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
