"""Build the syntax tree of a HOCON text from its tokens.

Callers: hocon, json_form, sql_form. After a mistake it resumes at the next line or brace, so that
one run finds many. With `strict_json` the same grammar accepts only JSON. It merges and substitutes
nothing: that is done by merge and resolve.
"""

from dataclasses import dataclass, field

from tidegate.config.document import SyntaxProblems
from tidegate.config.hocon.lexer import SIMPLE, Lexer, Substitution, Token, TokenKind
from tidegate.config.hocon.syntax import (
    Assignment,
    Concat,
    Include,
    Leaf,
    ListNode,
    ObjectNode,
    Reference,
    SyntaxNode,
)
from tidegate.model.problem import Location

# Deeper than any job file, and far below Python's recursion limit.
DEPTH_MAX = 60
KEY_TOKENS_MAX = 200
PATH_SEPARATOR = "->"  # SeaTunnel's: a dot does not nest
_SEPARATORS = (TokenKind.COLON, TokenKind.EQUALS, TokenKind.PLUS_EQUALS)
_KEYS = (TokenKind.STRING, TokenKind.TEXT, TokenKind.NUMBER, TokenKind.WORD)
_OPENING = {
    TokenKind.OPEN_CURLY: TokenKind.CLOSE_CURLY,
    TokenKind.OPEN_SQUARE: TokenKind.CLOSE_SQUARE,
}
_ENDS = (TokenKind.CLOSE_CURLY, TokenKind.CLOSE_SQUARE, TokenKind.END)
_INCLUDE_KINDS = {"file(": "file", "url(": "url", "classpath(": "classpath"}


@dataclass(slots=True)
class Parser:
    """Parses one text. `root` reads a complete file, `value` one value and nothing after it."""

    text: str
    file: str
    problems: SyntaxProblems
    strict_json: bool = False
    first_line: int = 1
    _tokens: list[Token] = field(init=False)
    _position: int = 0
    _open: list[tuple[Token, str]] = field(default_factory=list)
    _unclosed_reported: bool = False

    def __post_init__(self) -> None:
        lexer = Lexer(self.text, self.file, self.problems, self.first_line)
        tokens = lexer.tokenize()
        # An unclosed """ string is reported already; reporting its open braces would only confuse.
        self._unclosed_reported = lexer.has_unclosed_text
        if self.strict_json:
            self._check_json_tokens(tokens)
        self._tokens = [token for token in tokens if token.kind is not TokenKind.COMMENT]

    def root(self) -> ObjectNode:
        """Parse the complete file as one object, with or without braces."""
        self._skip_newlines()
        first = self._peek()
        if first.kind is TokenKind.OPEN_SQUARE:
            self._add_problem(
                first,
                "the file is a list; a job file is an object with env, source, transform and sink",
            )
            return ObjectNode(self._at(first), ())
        if first.kind is not TokenKind.OPEN_CURLY:
            if self.strict_json and first.kind is not TokenKind.END:
                self._add_problem(first, "JSON begins with `{`")
            return self._object(None, "")
        node = self._braced("")
        self._skip_newlines()
        if (rest := self._peek()).kind is not TokenKind.END:
            self._add_problem(
                rest,
                f"the file continues with {_shown(rest)} after the `}}` that closes the `{{` of"
                f" line {first.line}",
            )
        return node

    def value(self) -> SyntaxNode:
        """Parse one value and nothing more, as in an option of the SQL form."""
        node = self._value("")
        self._skip_newlines()
        if (rest := self._peek()).kind is not TokenKind.END:
            self._add_problem(rest, f"expected the end of the value, found {_shown(rest)}")
        return node if node is not None else Leaf(Location(self.file, self.first_line), None, "")

    # --- tokens

    def _peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._position + ahead, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._peek()
        self._position += 1
        return token

    def _at(self, token: Token) -> Location:
        return Location(self.file, token.line)

    def _add_problem(self, token: Token, message: str) -> None:
        self.problems.add(self._at(token), message)

    def _skip_newlines(self) -> bool:
        start = self._position
        while self._peek().kind is TokenKind.NEWLINE:
            self._position += 1
        return self._position > start

    def _skip_line(self) -> None:
        """Recover: skip to the end of the line or to an enclosing brace, over nested blocks."""
        depth = 0
        while (kind := self._peek().kind) is not TokenKind.END:
            if depth == 0 and kind in (
                TokenKind.NEWLINE,
                TokenKind.CLOSE_CURLY,
                TokenKind.CLOSE_SQUARE,
            ):
                return
            depth += (kind in _OPENING) - (kind in _ENDS)
            self._position += 1

    # --- objects

    def _braced(self, name: str) -> ObjectNode:
        opened = self._next()
        self._open.append((opened, name))
        try:
            if len(self._open) > DEPTH_MAX:
                return self._too_deep(opened)
            return self._object(opened, name)
        finally:
            self._open.pop()

    def _too_deep(self, opened: Token) -> ObjectNode:
        self._add_problem(opened, f"braces and brackets are nested more than {DEPTH_MAX} deep")
        self._position = len(self._tokens) - 1
        self._unclosed_reported = True
        return ObjectNode(self._at(opened), ())

    def _object(self, opened: Token | None, name: str) -> ObjectNode:
        at = self._at(opened or self._peek())
        fields: list[Assignment | Include] = []
        seen: set[str] = set()
        while not self._object_ends(opened, name):
            made = self._field()
            if made is None:
                self._skip_line()
            else:
                fields.append(made)
                if self.strict_json and isinstance(made, Assignment):
                    self._check_json_duplicate(made, seen)
            self._separator(
                f"`{_name_of(made)}`" if made else "this",
                "`}`" if opened else "the end of the file",
            )
        return ObjectNode(at, tuple(fields))

    def _object_ends(self, opened: Token | None, name: str) -> bool:
        """Report whether the object ends here; reports and skips misplaced tokens."""
        while True:
            self._skip_newlines()
            token = self._peek()
            if token.kind is TokenKind.END:
                if opened:
                    self._unclosed()
                return True
            if token.kind is TokenKind.CLOSE_CURLY and opened:
                self._position += 1
                return True
            if (
                token.kind is TokenKind.CLOSE_SQUARE
                and opened
                and self._inside(TokenKind.OPEN_SQUARE)
            ):
                self._add_problem(
                    token,
                    f"`]` found where the `{{` of {_block(name, opened)} has to be closed with `}}`"
                    " first",
                )
                return True
            if token.kind is TokenKind.COMMA:
                self._add_problem(token, "a comma with nothing before it")
            elif token.kind in _ENDS:
                self._add_problem(token, f"`{token.text}` closes nothing that is open")
            else:
                return False
            self._position += 1

    def _inside(self, kind: TokenKind) -> bool:
        return any(token.kind is kind for token, _ in self._open)

    def _unclosed(self) -> None:
        if self._unclosed_reported:
            return
        self._unclosed_reported = True
        blocks = [f"`{token.text}` of {_block(name, token)}" for token, name in self._open]
        self._add_problem(
            self._open[0][0],
            f"the file ends, but {' and '.join(blocks)} {'is' if len(blocks) == 1 else 'are'} still"
            " open",
        )

    def _field(self) -> Assignment | Include | None:
        first = self._peek()
        if self._is_include():
            return self._include()
        path = self._key()
        if path is None:
            return None
        name = PATH_SEPARATOR.join(path)[:60]
        if not self._separated(first, name):
            return None
        separator = self._peek()
        if separator.kind is not TokenKind.OPEN_CURLY:
            self._position += 1
        value = self._value(name)
        if value is None:
            self._add_problem(first, f"`{name}` has no value")
            return None
        return Assignment(
            self._at(first), path, value, append=separator.kind is TokenKind.PLUS_EQUALS
        )

    def _separated(self, first: Token, name: str) -> bool:
        """Report whether `=`, `:` or `{` follows the key, perhaps on the next line.

        If so, the position is before it.
        """
        key_end = self._position
        self._skip_newlines()
        found = self._peek()
        if found.kind in _SEPARATORS or found.kind is TokenKind.OPEN_CURLY:
            if self.strict_json and found.kind is not TokenKind.COLON:
                self._add_problem(found, f"JSON has `:` after a key, not {_shown(found)}")
            return True
        self._position = key_end
        self._add_problem(
            first, f"expected `=`, `:` or `{{` after the key `{name}`, found {_shown(self._peek())}"
        )
        return False

    def _key(self) -> tuple[str, ...] | None:
        """Parse the names of a key: quoted ones unchanged, others split at `->`."""
        first, start = self._peek(), self._position
        names, fixed = [""], [False]
        while (token := self._peek()).kind in _KEYS:
            self._position += 1
            if self._position - start > KEY_TOKENS_MAX:
                self._add_problem(
                    first, f"a key of more than {KEY_TOKENS_MAX} words: is a quote missing?"
                )
                return None
            if token is not first:
                names[-1] += token.space
            if token.kind is TokenKind.STRING or self.strict_json:
                names[-1] += token.text
                fixed[-1] = True
                continue
            head, *tail = token.text.split(PATH_SEPARATOR)
            names[-1] += head
            names += tail
            fixed += [False] * len(tail)
        if token.kind is TokenKind.SUBSTITUTION:
            self._add_problem(token, f"{token.text} cannot be part of a key")
            return None
        if self._position == start:
            self._add_problem(token, f"expected a key, found {_shown(token)}")
            return None
        if not all(name or was for name, was in zip(names, fixed, strict=True)):
            self._add_problem(
                first, f"the key `{PATH_SEPARATOR.join(names)[:60]}` has an empty name in it"
            )
            return None
        if len(names) + len(self._open) > DEPTH_MAX:
            self._add_problem(first, f"keys are nested more than {DEPTH_MAX} deep")
            return None
        return tuple(names)

    # --- includes

    def _is_include(self) -> bool:
        if (
            self.strict_json
            or self._peek().kind is not TokenKind.TEXT
            or self._peek().text != "include"
        ):
            return False
        after = self._peek(1)
        return after.kind is TokenKind.STRING or (
            after.kind is TokenKind.TEXT and after.text.startswith(("required(", *_INCLUDE_KINDS))
        )

    def _include(self) -> Include | None:
        keyword = self._next()
        words = ""
        while self._peek().kind is TokenKind.TEXT:
            words += self._next().text
        name = self._next()
        closing = 0
        while self._peek().kind is TokenKind.TEXT and set(self._peek().text) == {")"}:
            closing += len(self._next().text)
        required = words.startswith("required(")
        how = words.removeprefix("required(")
        if (
            name.kind is not TokenKind.STRING
            or closing != words.count("(")
            or (how and how not in _INCLUDE_KINDS)
        ):
            self._position -= 1
            self._add_problem(
                keyword, 'expected include "file", include file("file") or include required("file")'
            )
            return None
        return Include(self._at(keyword), name.text, _INCLUDE_KINDS.get(how, "relative"), required)

    # --- values

    def _value(self, name: str) -> SyntaxNode | None:
        """Parse everything up to the end of the line, comma or brace; None if there is nothing."""
        before = self._position
        if self._skip_newlines() and self._looks_like_field():
            self._position = before
            return None
        first = self._peek()
        parts: list[SyntaxNode] = []
        simple = False
        while (token := self._peek()).kind in SIMPLE or token.kind in _OPENING:
            if parts and not simple and token.kind in _KEYS:
                # Text after an object or a list never continues it: a comma is missing.
                break
            if parts and simple and token.kind in SIMPLE and token.space:
                parts.append(Leaf(self._at(token), token.space, token.space, blank=True))
            simple = token.kind in SIMPLE
            parts.append(self._part(name))
        if self.strict_json and len(parts) > 1:
            self._add_problem(first, "two values with no comma between them")
        if not parts:
            self._position = before
            return None
        return parts[0] if len(parts) == 1 else Concat(self._at(first), tuple(parts))

    def _looks_like_field(self) -> bool:
        """Report whether the line is a field, so that the value before it is missing."""
        ahead = 0
        while self._peek(ahead).kind in _KEYS:
            ahead += 1
        return ahead > 0 and (
            self._peek(ahead).kind in _SEPARATORS or self._peek(ahead).kind is TokenKind.OPEN_CURLY
        )

    def _part(self, name: str) -> SyntaxNode:
        token = self._peek()
        if token.kind is TokenKind.OPEN_CURLY:
            return self._braced(name)
        if token.kind is TokenKind.OPEN_SQUARE:
            return self._list(name)
        self._position += 1
        if isinstance(token.value, Substitution):
            inside = token.value
            return Reference(
                self._at(token), inside.path, inside.optional, inside.default, token.text
            )
        return Leaf(self._at(token), token.value, token.text)

    def _list(self, name: str) -> ListNode | ObjectNode:
        opened = self._next()
        self._open.append((opened, name))
        try:
            if len(self._open) > DEPTH_MAX:
                return self._too_deep(opened)
            items: list[SyntaxNode] = []
            while not self._list_ends(opened, name):
                item = self._value(name)
                if item is None:
                    self._add_problem(
                        self._peek(),
                        f"expected a value in the list of {_block(name, opened)}, found"
                        f" {_shown(self._peek())}",
                    )
                    self._skip_line()
                else:
                    items.append(item)
                self._separator("an element of the list", "`]`")
            return ListNode(self._at(opened), tuple(items))
        finally:
            self._open.pop()

    def _list_ends(self, opened: Token, name: str) -> bool:
        while True:
            self._skip_newlines()
            token = self._peek()
            if token.kind is TokenKind.END:
                self._unclosed()
                return True
            if token.kind is TokenKind.CLOSE_SQUARE:
                self._position += 1
                return True
            if token.kind is TokenKind.CLOSE_CURLY:
                self._add_problem(
                    token,
                    f"`}}` found where the `[` of {_block(name, opened)} has to be closed with `]`"
                    " first",
                )
                if self._inside(TokenKind.OPEN_CURLY):
                    return True
            elif token.kind is TokenKind.COMMA:
                self._add_problem(token, "a comma with no value before it")
            else:
                return False
            self._position += 1

    def _separator(self, what: str, end: str) -> None:
        """Skip the comma or line end after an element.

        If there is neither, that is a problem, and parsing resumes on the next line.
        """
        newline = self._skip_newlines()
        token = self._peek()
        if token.kind is TokenKind.COMMA:
            self._position += 1
            if self.strict_json:
                self._skip_newlines()
                if self._peek().kind in _ENDS:
                    self._add_problem(token, f"JSON has no comma before {_shown(self._peek())}")
            return
        if token.kind in _ENDS or (newline and not self.strict_json):
            return
        ways = "a comma" if self.strict_json else "a comma, a new line"
        hint = (
            ": is a comma missing before, or are double quotes around the value?"
            if token.kind in _SEPARATORS
            else ""
        )
        self._add_problem(
            token, f"expected {ways} or {end} after {what}, found {_shown(token)}{hint}"
        )
        if not newline and not self._looks_like_field():
            self._skip_line()

    # --- restrictions of JSON

    def _check_json_tokens(self, tokens: list[Token]) -> None:
        for token in tokens:
            if token.kind is TokenKind.COMMENT:
                self._add_problem(token, "JSON has no comments")
            elif token.kind is TokenKind.TEXT or token.kind is TokenKind.SUBSTITUTION:
                self._add_problem(token, f"`{token.text[:40]}` has to be in double quotes in JSON")
            elif token.triple:
                self._add_problem(token, 'JSON has no """ strings')

    def _check_json_duplicate(self, made: Assignment, seen: set[str]) -> None:
        key = made.path[0]
        if key in seen:
            self.problems.add(made.at, f"the key `{key}` occurs twice in one object")
        seen.add(key)


def _name_of(made: Assignment | Include) -> str:
    return PATH_SEPARATOR.join(made.path) if isinstance(made, Assignment) else "include"


def _block(name: str, token: Token) -> str:
    return f"`{name}` (line {token.line})" if name else f"line {token.line}"


def _shown(token: Token) -> str:
    if token.kind in (TokenKind.END, TokenKind.NEWLINE):
        return f"the {token.text}"
    text = token.text.split("\n")[0]
    return f"`{text[:40]}`"
