"""JSON text -> Document: by a quick way where the text is plain and correct, else by the grammar of
HOCON held to the rules of JSON, so that all mistakes are found at once, with their lines.

Caller: load. Keys stay as they are (`"row.num"` is one key), nothing is substituted here, and
`source` is a list already.
"""

from tidegate.config.document import Document, SyntaxProblems
from tidegate.config.hocon.parse import resolve_document
from tidegate.config.hocon.parser import Parser
from tidegate.config.quick_json import read_plain


def parse_json(text: str, name: str) -> Document:
    """A JSON file as data, with the line of every key."""
    return read_plain(text, name) or parse_strictly(text, name)


def parse_strictly(text: str, name: str) -> Document:
    """The same, whatever the text is like."""
    problems = SyntaxProblems()
    if not text.strip():
        return Document(name=name, data={}, positions={})
    node = Parser(text, name, problems, strict_json=True).root()
    return resolve_document(node, name, problems, dialect=False)
