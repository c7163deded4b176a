"""What a function of the reference is: a name, how many arguments, and a Python function that
writes its Spark SQL. The functions_*.py register theirs here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidegate.connectors.sql.convert import as_double, as_text
from tidegate.connectors.sql.problem import SqlError
from tidegate.connectors.sql.types import NULL, STRING, Typed


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments, already translated."""

    name: str
    args: tuple[Typed, ...]

    def sql(self, index: int) -> str:
        """An argument as it is."""
        return self.args[index].sql

    def text(self, index: int) -> str:
        return as_text(self.args[index])

    def double(self, index: int) -> str:
        return as_double(self.args[index])

    def given(self, index: int) -> bool:
        """Whether an optional argument is there and is not NULL."""
        return index < len(self.args) and not self.args[index].is_a(NULL)

    def word(self, index: int, default: str) -> str:
        """An argument that decides what the function does (a unit, a flag): it must be a constant."""
        if not self.given(index):
            return default
        value = self.args[index]
        if not (value.is_a(STRING) and isinstance(value.literal, str)):
            raise SqlError(f"{self.name}: argument {index + 1} must be a text constant")
        return value.literal

    def constant(self, index: int) -> int | None:
        """A whole-number argument where it is a constant."""
        value = self.args[index].literal if index < len(self.args) else None
        return value if isinstance(value, int) else None


Render = Callable[[Call], Typed]
_F = TypeVar("_F", bound=Render)


@dataclass(frozen=True, slots=True)
class Function:
    """One entry of the catalogue."""

    name: str
    least: int
    most: int
    render: Render

    def __call__(self, args: tuple[Typed, ...]) -> Typed:
        """The Spark SQL of a call."""
        if not self.least <= len(args) <= self.most:
            wanted = (
                f"{self.least}"
                if self.least == self.most
                else (
                    f"{self.least} to {self.most}" if self.most < MANY else f"at least {self.least}"
                )
            )
            raise SqlError(
                f"{self.name} takes {wanted} argument{'' if wanted == '1' else 's'}, not"
                f" {len(args)}"
            )
        return self.render(Call(self.name, args))


MANY = 1000
FUNCTIONS: dict[str, Function] = {}


def function(names: str, least: int, most: int | None = None) -> Callable[[_F], _F]:
    """Register a function under one or several names."""

    def register(render: _F) -> _F:
        for name in names.split():
            FUNCTIONS[name] = Function(name, least, least if most is None else most, render)
        return render

    return register
