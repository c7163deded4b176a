"""Registry of SeaTunnel's SQL functions.

An entry is a name, a number of arguments, and a Python function that writes the Spark SQL of a
call. The modules functions_*.py register theirs here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidegate.connectors.sql.convert import as_double, as_text
from tidegate.connectors.sql.errors import SqlError
from tidegate.connectors.sql.types import NULL, STRING, Typed


@dataclass(frozen=True, slots=True)
class Call:
    """A function call with translated arguments."""

    name: str
    args: tuple[Typed, ...]

    def sql(self, index: int) -> str:
        """The SQL of an argument, without conversion."""
        return self.args[index].sql

    def text(self, index: int) -> str:
        return as_text(self.args[index])

    def double(self, index: int) -> str:
        return as_double(self.args[index])

    def has_argument(self, index: int) -> bool:
        """Whether an optional argument is present and not NULL."""
        return index < len(self.args) and not self.args[index].is_a(NULL)

    def keyword(self, index: int, default: str) -> str:
        """An argument that selects what the function does (a unit, a flag); must be a constant."""
        if not self.has_argument(index):
            return default
        value = self.args[index]
        if not (value.is_a(STRING) and isinstance(value.literal, str)):
            raise SqlError(f"{self.name}: argument {index + 1} must be a text constant")
        return value.literal

    def constant(self, index: int) -> int | None:
        """The value of an integer constant; None for any other argument."""
        value = self.args[index].literal if index < len(self.args) else None
        return value if isinstance(value, int) else None


Render = Callable[[Call], Typed]
_F = TypeVar("_F", bound=Render)


@dataclass(frozen=True, slots=True)
class Function:
    """A registered function with its number of arguments."""

    name: str
    least: int
    most: int
    render: Render

    def __call__(self, args: tuple[Typed, ...]) -> Typed:
        """Write the Spark SQL of a call."""
        if not self.least <= len(args) <= self.most:
            expected = self._expected()
            raise SqlError(
                f"{self.name} takes {expected} argument{'' if expected == '1' else 's'}, not"
                f" {len(args)}"
            )
        return self.render(Call(self.name, args))

    def _expected(self) -> str:
        if self.least == self.most:
            return f"{self.least}"
        return f"{self.least} to {self.most}" if self.most < MANY else f"at least {self.least}"


MANY = 1000
FUNCTIONS: dict[str, Function] = {}


def function(names: str, least: int, most: int | None = None) -> Callable[[_F], _F]:
    """Register a function under one or several names."""

    def register(render: _F) -> _F:
        for name in names.split():
            FUNCTIONS[name] = Function(name, least, least if most is None else most, render)
        return render

    return register
