"""Parse a JSON job file.

Caller: load. Plain, correct JSON is read by quick_json; anything else by the HOCON grammar
restricted to JSON, so that all mistakes are found at once, with their lines. Keys stay unchanged
(`"row.num"` is one key), nothing is substituted, and `source` is a list already.
"""

from tidegate.config.document import Document, SyntaxProblems
from tidegate.config.hocon.parse import resolve_document
from tidegate.config.hocon.parser import Parser
from tidegate.config.quick_json import read_plain


def parse_json(text: str, name: str) -> Document:
    """Parse a JSON file, with the line of every key."""
    return read_plain(text, name) or parse_strictly(text, name)


def parse_strictly(text: str, name: str) -> Document:
    """Parse by the grammar, which reports every mistake."""
    problems = SyntaxProblems()
    if not text.strip():
        return Document(name=name, data={}, positions={})
    node = Parser(text, name, problems, strict_json=True).root()
    return resolve_document(node, name, problems, dialect=False)
