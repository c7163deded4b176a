"""Parses the SQL of job files with sqlglot.

Function calls are kept as written, names may be quoted in two ways, and text has no backslash
escapes. Called by query.py only. Does not know what functions mean (functions_*.py do).
"""

from collections.abc import Iterator

from sqlglot import TokenType, exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError

from tidegate.connectors.sql.errors import SqlError
from tidegate.model.problem import closest_match

DEPTH_MAX = 32
"""Maximum nesting of brackets and calls. sqlglot recurses; whether it accepts a query must not
depend on the depth of the caller's stack."""
CHAIN_MAX = 250
"""Maximum depth of the parsed tree: `a or b or c` nests to the left, once for each operator."""
CHARS_MAX = 1_000_000
# Functions with their own syntax; all others are name(arguments).
_KEPT = ("CAST", "TRY_CAST", "EXTRACT")


class JobSql(Dialect):
    """The SQL that SeaTunnel's parser accepts, restricted to queries that work row by row."""

    class Tokenizer(tokens.Tokenizer):
        """Backticks and double quotes around names; `''` is the only escape in text."""

        IDENTIFIERS = ['"', "`"]  # noqa: RUF012  # the base class declares it so
        QUOTES = ["'"]  # noqa: RUF012  # the base class declares it so
        STRING_ESCAPES = ["'"]  # noqa: RUF012  # the base class declares it so

    class Parser(parser.Parser):
        """Parses functions generically, which keeps the order and number of arguments."""

        FUNCTIONS = {}  # noqa: RUF012  # the base class declares it so
        FUNCTION_PARSERS = {  # noqa: RUF012  # the base class declares it so
            name: read for name, read in parser.Parser.FUNCTION_PARSERS.items() if name in _KEPT
        }


def parse_select(query: str) -> exp.Select:
    """Parse a query that must be a single SELECT; raises SqlError with the line otherwise."""
    if len(query) > CHARS_MAX:
        raise SqlError(
            f"the query is too long: it has {len(query)} characters, more than {CHARS_MAX}"
        )
    try:
        _check_nesting(query)
        statements = [s for s in JobSql().parse(query) if s is not None]
    except RecursionError:
        raise _too_deep() from None
    except ParseError as error:
        raise _not_sql(query, error) from error
    except TokenError as error:
        raise SqlError("the query is not SQL: a quotation or a comment has no end") from error
    if len(statements) != 1:
        raise SqlError(f"the query contains {len(statements)} statements: write one SELECT")
    if not isinstance(statements[0], exp.Select) or not statements[0].expressions:
        raise SqlError("the query is not a plain SELECT ... FROM ... WHERE ...")
    if any(depth > CHAIN_MAX for depth in _depths(statements[0])):
        raise SqlError(
            f"the query is too deep: more than {CHAIN_MAX} operators in one expression. Use IN"
            " (...), or several Sql transforms"
        )
    return statements[0]


def _check_nesting(query: str) -> None:
    depth = 0
    for token in JobSql().tokenize(query):
        opens = token.token_type in (TokenType.L_PAREN, TokenType.CASE)
        closes = token.token_type in (TokenType.R_PAREN, TokenType.END)
        depth += opens - closes
        if depth > DEPTH_MAX:
            raise _too_deep(token.line)


def _too_deep(line: int = 1) -> SqlError:
    return SqlError(
        f"the query is too deep: brackets, calls and CASE nest more than {DEPTH_MAX} levels. Use"
        " several Sql transforms",
        line=line,
    )


def _depths(select: exp.Select) -> Iterator[int]:
    """The depth of every node, without recursion."""
    stack: list[tuple[exp.Expr, int]] = [(select, 1)]
    while stack:
        node, depth = stack.pop()
        yield depth
        stack.extend((child, depth + 1) for child in node.iter_expressions())


def _not_sql(query: str, error: ParseError) -> SqlError:
    first = error.errors[0] if error.errors else {}
    near = str(first.get("highlight") or "").strip()
    what = (
        str(first.get("description") or "it cannot be read")
        .strip()
        .rstrip(".")
        .replace("Invalid expression / Unexpected token", "unexpected token")
    )
    begin = query.split(maxsplit=1)[0] if query.split() else ""
    suggestion = "" if begin.upper() == "SELECT" else closest_match(begin, ["SELECT"])
    return SqlError(
        f"the query is not SQL: {what}" + (f", at {near!r}" if near else ""),
        line=int(first.get("line") or 1),
        suggestion=suggestion,
    )


def sql_of(node: exp.Expr) -> str:
    """Write an expression as text. Also the name of a column without alias: `id+1` is `id + 1`."""
    return node.sql(dialect=JobSql, normalize_functions=False)
