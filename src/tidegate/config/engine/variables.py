"""`${NAME}`, `${NAME:default}` and `${file:/path}` in the values of the engine's file, so that
passwords can stay out of it. Caller: engine.

Takes the environment as a mapping; reads only the files that are named. What it fills in never gets
into a message.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SECRET_CHARS_MAX = 65_536
_PLACEHOLDER = re.compile(r"\$\{([^{}:]+)(?::([^{}]*))?\}")
# Spark fills these in by itself.
_OF_SPARK = re.compile(r"env|system|hadoopconf|sparkconf|.*\..*")


class NotFilled(Exception):
    """A variable that has no value. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A text with its variables filled in, and their names: an empty list where nothing came from
    outside.
    """

    text: str
    names: tuple[str, ...]


def fill_in(text: str, environ: Mapping[str, str], *, for_spark: bool = False) -> Filled:
    """The text with its variables filled in, or NotFilled.

    In a value for Spark, Spark's own are left alone.
    """
    names: list[str] = []

    def one(found: re.Match[str]) -> str:
        name, default = found.group(1).strip(), found.group(2)
        if for_spark and _OF_SPARK.fullmatch(name):
            return found.group()
        value = _content(default) if name == "file" and default else environ.get(name)
        if value is None:
            if default is None:
                raise NotFilled(
                    f"the variable {name} is not set: give it in the environment, or write"
                    f" ${{{name}:default}}"
                )
            return default
        names.append(f"file:{default}" if name == "file" and default else name)
        return value

    return Filled(_PLACEHOLDER.sub(one, text), tuple(names))


def _content(path: str) -> str:
    """What a file holds, without the newline at its end."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(SECRET_CHARS_MAX + 1)
    except OSError as error:
        raise NotFilled(
            f"the file {path} cannot be read: {error.strerror or 'it is not there'}"
        ) from None
    except UnicodeDecodeError:
        raise NotFilled(f"the file {path} is not UTF-8 text") from None
    if len(text) > SECRET_CHARS_MAX:
        raise NotFilled(f"the file {path} is too large to be a value")
    return text.rstrip("\r\n")
