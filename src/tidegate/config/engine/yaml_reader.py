"""Parse YAML as a Document: plain data with the line of every key, and every mistake.

Caller: engine. It knows no key. Values are those of YAML 1.2, as in SeaTunnel: `on`, `off`, `yes`,
`no`, `12:30` and dates are text. No objects are constructed: tags other than those of plain values
are mistakes, and the expansion of aliases is limited.
"""

import re
from collections.abc import Callable
from typing import Any

import yaml

from tidegate.config.document import Data, Document, Positions, SyntaxProblems
from tidegate.model.job import Path
from tidegate.model.problem import Location

CHARS_MAX = 1_000_000
NODES_MAX = 10_000  # after aliases are followed
DEPTH_MAX = 40
_Resolvers = dict[str, list[tuple[str, re.Pattern[str]]]]
_TAG = "tag:yaml.org,2002:"


class _PlainLoader(yaml.SafeLoader):
    """Only composes. Its scalars are typed by the rules of YAML 1.2."""

    # Declared as in the base class.
    yaml_implicit_resolvers: _Resolvers = {}  # noqa: RUF012  # PyYAML declares it so


def _resolver(tag: str, pattern: str, first: str) -> None:
    _PlainLoader.add_implicit_resolver(_TAG + tag, re.compile(rf"(?:{pattern})\Z"), list(first))


_resolver("null", r"~|null|Null|NULL|", "~nN\0")
_PlainLoader.yaml_implicit_resolvers.setdefault("", []).extend(
    _PlainLoader.yaml_implicit_resolvers.pop("\0")
)
_resolver("bool", r"true|True|TRUE|false|False|FALSE", "tTfF")
_resolver("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789")
_resolver("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789")


def _whole(text: str) -> int:
    return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)


# None is null. Texts that do not fit their explicit tag raise ValueError.
_SCALARS: dict[str, Callable[[str], Data]] = {
    "str": str,
    "null": lambda text: None,  # noqa: ARG005  # one signature for all
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "int": _whole,
    "float": float,
}


def parse_yaml(text: str, name: str) -> Document:
    """Parse a text.

    `data` is what could be read; it is empty after a syntax error.
    """
    problems = SyntaxProblems()
    reading = _YamlReader(name, problems)
    data: dict[str, Data] = {}
    if len(text) > CHARS_MAX:
        problems.add(
            Location(name),
            f"the file has more than {CHARS_MAX:,} characters: it is not an engine's file",
        )
    else:
        data = reading.read(text)
    return Document(name=name, data=data, positions=reading.positions, problems=problems.problems)


class _LimitExceeded(Exception):
    """More nodes, or deeper nesting, than any settings need."""


class _YamlReader:
    def __init__(self, name: str, problems: SyntaxProblems) -> None:
        self.name = name
        self.problems = problems
        self.positions: Positions = {}
        self._nodes = 0

    def read(self, text: str) -> dict[str, Data]:
        try:
            root = yaml.compose(text, Loader=_PlainLoader)
            if root is None or (isinstance(root, yaml.ScalarNode) and root.tag == _TAG + "null"):
                return {}
            if not isinstance(root, yaml.MappingNode):
                self.problems.add(
                    self._at(root), "an engine's file must be a block of keys and values"
                )
                return {}
            return self._mapping(root, ())
        except yaml.MarkedYAMLError as error:
            self.problems.add(
                Location(self.name, error.problem_mark.line + 1 if error.problem_mark else 0),
                _sentence(error),
            )
        except yaml.YAMLError as error:
            position = getattr(error, "position", 0)
            self.problems.add(
                Location(self.name, text.count("\n", 0, position) + 1),
                "this line has a character that YAML does not allow",
            )
        except (_LimitExceeded, RecursionError):
            self.problems.add(
                Location(self.name),
                f"the file is nested too deep or, with its aliases, has more than {NODES_MAX:,}"
                " values",
            )
        return {}

    def _value(self, node: Any, path: Path) -> Data:
        self._nodes += 1
        if self._nodes > NODES_MAX or len(path) > DEPTH_MAX:
            raise _LimitExceeded
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self._value(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Data]:
        data: dict[str, Data] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.add(self._at(key_node), "a key must be a single word")
                continue
            key = str(key_node.value)
            here: Path = (*path, key)
            if key == "<<":
                self.problems.add(
                    self._at(key_node),
                    "`<<` (merging blocks) is not supported: write the keys out",
                )
            elif key in data:
                self.problems.add(
                    self._at(key_node),
                    f"{key} is set twice, first on line {self.positions[here].line}",
                )
            else:
                self.positions[here] = self._at(key_node)
                data[key] = self._value(value_node, here)
        return data

    def _scalar(self, node: Any) -> Data:
        """Convert a scalar. It may be a secret: no message shows it."""
        kind = str(node.tag).removeprefix(_TAG)
        if not isinstance(node, yaml.ScalarNode) or kind not in _SCALARS:
            self.problems.add(
                self._at(node),
                "a value with a tag (!...) is not supported: a text that begins with ! needs"
                " quotes",
            )
            return None
        try:
            return _SCALARS[kind](str(node.value))
        except (ValueError, KeyError):
            self.problems.add(self._at(node), f"the value does not fit its tag !!{kind}")
            return None

    def _at(self, node: Any) -> Location:
        return Location(self.name, node.start_mark.line + 1)


def _sentence(error: yaml.MarkedYAMLError) -> str:
    """Describe a syntax error without quoting the file.

    `*word` and `&word` are unquoted values far more often than aliases, passwords among them.
    """
    problem = error.problem or "this is not YAML"
    if "alias" in problem or "anchor" in problem:
        return (
            "this line has an invalid alias (*...) or anchor (&...): a text that begins with * or &"
            " needs quotes"
        )
    if "'\\t'" in problem:
        return "this line has a tab: YAML is indented with spaces"
    problem = re.sub(r"(['\"])[^'\"\s<>]{2,}\1", "...", problem)
    return f"this is not YAML: {error.context + ', ' if error.context else ''}{problem}"
