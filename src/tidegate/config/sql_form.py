"""Parse the SQL form of a job file, as if the same job had been written in HOCON.

Caller: load. `/* config ... */` holds the env block; CREATE TABLE ... WITH declares sources and
sinks; CREATE TABLE ... AS SELECT and INSERT INTO ... SELECT ... FROM declare Sql transforms; INSERT
INTO sink SELECT source connects them without one.
"""

import re
from dataclasses import dataclass, field

from tidegate.config.document import Document, SyntaxProblems
from tidegate.config.hocon.lexer import join_surrogates
from tidegate.config.hocon.parse import Read, no_includes, no_lookup, resolve_document
from tidegate.config.hocon.parser import Parser
from tidegate.config.hocon.resolve import Lookup
from tidegate.config.hocon.syntax import Assignment, Include, Leaf, ListNode, ObjectNode, SyntaxNode
from tidegate.config.sql_text import SqlStatement, SqlText, SqlToken
from tidegate.model.problem import Location, Problem, ProblemKind, Severity

_TEMPORARY = "__temp"
_ESCAPE = re.compile(r'\\(u[0-9a-fA-F]{4}|[nrtbf"\\/])')
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


@dataclass(frozen=True, slots=True)
class _Table:
    """A created table: a source, a sink or the result of a SELECT."""

    kind: str
    name: str
    connector: str
    fields: tuple[Assignment, ...]
    at: Location


def parse_sql(
    text: str, name: str, *, lookup: Lookup = no_lookup, read: Read = no_includes
) -> Document:
    """Parse a file of the SQL form."""
    problems = SyntaxProblems()
    sql = SqlText(text, name, problems)
    sql.split()
    form = _Form(name, problems)
    # As in SeaTunnel, a table may be created after the INSERT that uses it.
    for statement in sql.statements:
        form.create(statement)
    for statement in sql.statements:
        form.select(statement)
    fields: list[Assignment | Include] = []
    for config, line in sql.configs:
        fields += Parser(config, name, problems, first_line=line).root().fields
    root = ObjectNode(Location(name, 1), (*fields, *form.blocks()))
    document = resolve_document(root, name, problems, lookup=lookup, read=read)
    document.problems += form.warnings()
    return document


@dataclass(slots=True)
class _Form:
    """Collects the tables and the data flows between them."""

    file: str
    problems: SyntaxProblems
    tables: dict[str, _Table] = field(default_factory=dict)
    transforms: list[_Table] = field(default_factory=list)
    sinks: list[_Table] = field(default_factory=list)
    temporary: int = 0

    def _add_problem(self, token: SqlToken, message: str) -> None:
        self.problems.add(Location(self.file, token.line), message)

    # --- CREATE TABLE ... WITH

    def create(self, statement: SqlStatement) -> None:
        """Read a CREATE TABLE with options; other statements are read by `select`."""
        tokens = statement.tokens
        body = _after_table_name(tokens)
        if body is None or (body < len(tokens) and tokens[body].is_word("AS")):
            return
        index = _after_columns(tokens, body)
        if index >= len(tokens) or not tokens[index].is_word("WITH"):
            self._add_problem(
                tokens[0],
                "CREATE TABLE needs WITH ('connector' = '...', 'type' = 'source', ...) or AS"
                " SELECT ...",
            )
            return
        options = self._options(tokens, index + 1)
        self._add_table(tokens[body - 1], options)

    def _options(
        self, tokens: tuple[SqlToken, ...], index: int
    ) -> dict[str, tuple[SqlToken, SqlToken]]:
        """Read the 'key' = 'value' pairs between parentheses."""
        options: dict[str, tuple[SqlToken, SqlToken]] = {}
        inside = tokens[index + 1 : -1]
        if index >= len(tokens) or tokens[index].text != "(" or tokens[-1].text != ")":
            self._add_problem(
                tokens[index - 1],
                "the options after WITH must be in parentheses: WITH ('key' = 'value', ...)",
            )
            return options
        while inside:
            key, equals, value = (*inside, inside[-1], inside[-1])[:3]
            if key.kind != "string" or equals.text != "=" or value.kind != "string":
                self._add_problem(key, f"expected 'key' = 'value', found {key.text[:40]}")
                return options
            options[key.value.strip()] = (key, value)
            if len(inside) > 3 and inside[3].text != ",":
                self._add_problem(
                    inside[3],
                    f"expected a comma after the option {key.value}, found {inside[3].text[:40]}",
                )
                return options
            inside = inside[4:]
        return options

    def _add_table(self, name: SqlToken, options: dict[str, tuple[SqlToken, SqlToken]]) -> None:
        kind = options["type"][1].value.strip().lower() if "type" in options else ""
        connector = options["connector"][1].value.strip() if "connector" in options else ""
        if kind not in ("source", "sink"):
            self._add_problem(
                name,
                f"the table {name.value} needs the option 'type' = 'source' or 'type' = 'sink'",
            )
        if not connector:
            self._add_problem(name, f"the table {name.value} needs the option 'connector'")
        if name.value in self.tables:
            self._add_problem(name, f"the table {name.value} is created twice")
        dropped = {"type", "connector", "result_table_name", "plugin_output"}
        if kind == "sink":
            dropped |= {"source_table_name", "plugin_input"}
        fields = [
            self._field(key, value)
            for name_of, (key, value) in options.items()
            if name_of not in dropped
        ]
        at = Location(self.file, name.line)
        if kind == "source":
            fields.append(_text_field("plugin_output", name.value, at))
        self.tables[name.value] = _Table(kind, name.value, connector, tuple(fields), at)

    def _field(self, key: SqlToken, value: SqlToken) -> Assignment:
        at = Location(self.file, key.line)
        node: SyntaxNode
        text = value.value.strip()
        if (text.startswith("{") and text.endswith("}")) or (
            text.startswith("[") and text.endswith("]")
        ):
            node = Parser(value.value, self.file, self.problems, first_line=value.line).value()
        else:
            plain = _unescaped(value.value)
            node = Leaf(at, plain, plain)
        return Assignment(at, (key.value.strip(),), node)

    # --- CREATE TABLE ... AS SELECT, INSERT INTO ... SELECT

    def select(self, statement: SqlStatement) -> None:
        """Read a statement that moves data; unknown statements are problems."""
        tokens = statement.tokens
        if tokens[0].is_word("INSERT"):
            self._insert(statement)
            return
        body = _after_table_name(tokens)
        if body is None:
            self._add_problem(
                tokens[0], f"expected CREATE TABLE or INSERT INTO, found {tokens[0].text[:40]}"
            )
        elif body < len(tokens) and tokens[body].is_word("AS"):
            self._create_as(statement, body)

    def _create_as(self, statement: SqlStatement, body: int) -> None:
        name = statement.tokens[body - 1]
        origin = self._from(statement, body + 1)
        if origin is None or not self._check_table(origin, ("source", "transform")):
            return
        if name.value in self.tables:
            self._add_problem(name, f"the table {name.value} is created twice")
            return
        self.tables[name.value] = self._transform(statement, body + 1, origin.value, name.value)

    def _insert(self, statement: SqlStatement) -> None:
        tokens = statement.tokens
        if len(tokens) < 5 or not tokens[1].is_word("INTO") or not tokens[2].is_name():
            self._add_problem(tokens[0], "expected INSERT INTO sink SELECT ... FROM source")
            return
        if tokens[3].text == "(":
            self._add_problem(
                tokens[3], "INSERT INTO takes no list of columns: name and order them in the SELECT"
            )
            return
        if len(tokens) == 5 and tokens[3].is_word("SELECT") and tokens[4].is_name():
            if self._check_table(tokens[4], ("source", "transform")) and self._check_table(
                tokens[2], ("sink",)
            ):
                self._sink(tokens[2], tokens[4].value)
            return
        origin = self._from(statement, 3)
        if (
            origin is None
            or not self._check_table(origin, ("source", "transform"))
            or not self._check_table(tokens[2], ("sink",))
        ):
            return
        self.temporary += 1
        result = f"{origin.value}{_TEMPORARY}{self.temporary}"
        self._transform(statement, 3, origin.value, result)
        self._sink(tokens[2], result)

    def _from(self, statement: SqlStatement, first: int) -> SqlToken | None:
        """Return the one table that a SELECT reads."""
        tokens = statement.tokens
        if first >= len(tokens) or not tokens[first].is_word("SELECT"):
            self._add_problem(tokens[min(first, len(tokens) - 1)], "expected SELECT here")
            return None
        depth = 0
        for i, token in enumerate(tokens[first:-1], first):
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0 and token.is_word("FROM"):
                if tokens[i + 1].is_name():
                    return tokens[i + 1]
                break
        self._add_problem(tokens[first], "the SELECT has to read FROM one table, by its name")
        return None

    def _check_table(self, name: SqlToken, kinds: tuple[str, ...]) -> bool:
        table = self.tables.get(name.value)
        if table is None or table.kind not in kinds:
            self._add_problem(
                name, f"there is no {'sink' if kinds == ('sink',) else 'source'} table {name.value}"
            )
            return False
        return True

    def _transform(self, statement: SqlStatement, first: int, origin: str, result: str) -> _Table:
        at = Location(self.file, statement.tokens[first].line)
        fields = (
            _text_field("plugin_input", origin, at),
            _text_field("query", statement.source(first), at),
            _text_field("plugin_output", result, at),
        )
        table = _Table("transform", result, "Sql", fields, at)
        self.transforms.append(table)
        return table

    def _sink(self, name: SqlToken, origin: str) -> None:
        table = self.tables[name.value]
        wired = (*table.fields, _text_field("plugin_input", origin, Location(self.file, name.line)))
        self.sinks.append(_Table("sink", table.name, table.connector, wired, table.at))

    # --- the result

    def blocks(self) -> list[Assignment]:
        """Return source, transform and sink as fields of the file's root."""
        sources = [table for table in self.tables.values() if table.kind == "source"]
        made = {"source": sources, "transform": self.transforms, "sink": self.sinks}
        return [
            Assignment(tables[0].at, (kind,), _plugins(tables))
            for kind, tables in made.items()
            if tables
        ]

    def warnings(self) -> list[Problem]:
        """Warn about sink tables that nothing is inserted into."""
        used = {table.name for table in self.sinks}
        unused = [
            table
            for table in self.tables.values()
            if table.kind == "sink" and table.name not in used
        ]
        return [
            Problem(
                kind=ProblemKind.WIRING,
                message=f"nothing is inserted into the table {table.name}: it is ignored",
                at=table.at,
                severity=Severity.WARNING,
            )
            for table in unused
        ]


def _after_table_name(tokens: tuple[SqlToken, ...]) -> int | None:
    """Return the index after CREATE TABLE [IF NOT EXISTS] name; None for other statements."""
    if len(tokens) < 3 or not tokens[0].is_word("CREATE") or not tokens[1].is_word("TABLE"):
        return None
    name = 5 if len(tokens) > 5 and tokens[2].is_word("IF") and tokens[3].is_word("NOT") else 2
    return name + 1 if tokens[name].is_name() else None


def _after_columns(tokens: tuple[SqlToken, ...], index: int) -> int:
    """Return the index after a list of columns, which is ignored."""
    if index >= len(tokens) or tokens[index].text != "(":
        return index
    depth = 0
    for i, token in enumerate(tokens[index:], index):
        depth += (token.text == "(" and token.kind == "other") - (
            token.text == ")" and token.kind == "other"
        )
        if depth == 0:
            return i + 1
    return len(tokens)


def _text_field(key: str, text: str, at: Location) -> Assignment:
    return Assignment(at, (key,), Leaf(at, text, text))


def _plugins(tables: list[_Table]) -> SyntaxNode:
    items = [
        ObjectNode(table.at, (_text_field("plugin_name", table.connector, table.at), *table.fields))
        for table in tables
    ]
    return ListNode(tables[0].at, tuple(items))


def _unescaped(text: str) -> str:
    """Resolve backslash escapes as in a quoted HOCON string; other backslashes stay."""
    done = _ESCAPE.sub(
        lambda found: chr(int(found[1][1:], 16)) if found[1][0] == "u" else _ESCAPES[found[1]], text
    )
    joined = join_surrogates(done)
    return text if joined is None else joined
