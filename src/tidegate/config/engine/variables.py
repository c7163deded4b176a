"""Variables in the engine's file: `${NAME}`, `${NAME:default}` and `${file:/path}`.

Caller: engine. They keep passwords out of the file. The environment is an argument; only the named
files are read. Substituted values never appear in a message.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SECRET_CHARS_MAX = 65_536
_PLACEHOLDER = re.compile(r"\$\{([^{}:]+)(?::([^{}]*))?\}")
# Spark replaces these itself.
_SPARK_VARIABLES = re.compile(r"env|system|hadoopconf|sparkconf|.*\..*")


class UnresolvedVariable(Exception):
    """A variable that has no value. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class FilledText:
    """A text with its variables substituted, and their names.

    The list is empty if the text has no external values.
    """

    text: str
    names: tuple[str, ...]


def substitute(text: str, environ: Mapping[str, str], *, for_spark: bool = False) -> FilledText:
    """Replace the variables of a text; raises UnresolvedVariable.

    In a value for Spark, Spark's own variables are left unchanged.
    """
    names: list[str] = []

    def one(found: re.Match[str]) -> str:
        name, default = found.group(1).strip(), found.group(2)
        if for_spark and _SPARK_VARIABLES.fullmatch(name):
            return found.group()
        value = _read_secret(default) if name == "file" and default else environ.get(name)
        if value is None:
            if default is None:
                raise UnresolvedVariable(
                    f"the variable {name} is not set: set it in the environment, or write"
                    f" ${{{name}:default}}"
                )
            return default
        names.append(f"file:{default}" if name == "file" and default else name)
        return value

    return FilledText(_PLACEHOLDER.sub(one, text), tuple(names))


def _read_secret(path: str) -> str:
    """Read a file, without the newline at its end."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(SECRET_CHARS_MAX + 1)
    except OSError as error:
        raise UnresolvedVariable(
            f"the file {path} cannot be read: {error.strerror or 'it does not exist'}"
        ) from None
    except UnicodeDecodeError:
        raise UnresolvedVariable(f"the file {path} is not UTF-8 text") from None
    if len(text) > SECRET_CHARS_MAX:
        raise UnresolvedVariable(f"the file {path} is too large to be a value")
    return text.rstrip("\r\n")
