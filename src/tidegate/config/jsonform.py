"""JSON text -> Document: the grammar of HOCON held to the rules of JSON, so that all mistakes are found at once, with their lines.

Caller: load. Keys stay as they are (`"row.num"` is one key), nothing is substituted here, and `source` is a list already.
"""

from tidegate.config.document import Document, SyntaxProblems
from tidegate.config.hocon import resolve_document
from tidegate.config.parser import Parser


def parse_json(text: str, name: str) -> Document:
    """A JSON file as data, with the line of every key."""
    problems = SyntaxProblems()
    if not text.strip():
        return Document(name=name, data={}, positions={})
    node = Parser(text, name, problems, strict_json=True).root()
    return resolve_document(node, name, problems, dialect=False)
