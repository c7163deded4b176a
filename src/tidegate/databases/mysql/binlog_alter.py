"""Parse the clauses of ALTER TABLE: which of them leave rows, columns and key unchanged.

Pure; called by binlog_ddl.py.
"""

import re
from dataclasses import dataclass
from enum import IntEnum

from tidegate.databases.mysql.binlog_lexer import Cursor, SqlToken, SqlTokenKind, clauses
from tidegate.databases.mysql.binlog_row_layout import LogColumn

_INDEXES = {"index", "key", "fulltext", "spatial"}
# `alter` changes a default, a constraint, or the visibility of an index or a column.
_HARMLESS_VERBS = {
    "alter",
    "enable",
    "disable",
    "order",
    "partition",
    "secondary_load",
    "secondary_unload",
    "union",
}
_PARTITION_UPKEEP = ("analyze", "check", "optimize", "rebuild", "repair", "coalesce", "reorganize")
_HARMLESS_PAIRS = {(verb, "partition") for verb in _PARTITION_UPKEEP} | {
    ("remove", "partitioning"),
    ("upgrade", "format"),
}
_HARMLESS_PAIRS |= {("with", "validation"), ("without", "validation")}
_OPTIONS = {
    "comment",
    "auto_increment",
    "checksum",
    "table_checksum",
    "page_checksum",
    "delay_key_write",
    "pack_keys",
    "row_format",
    "stats_persistent",
}
_OPTIONS |= {
    "stats_auto_recalc",
    "stats_sample_pages",
    "avg_row_length",
    "max_rows",
    "min_rows",
    "key_block_size",
    "compression",
    "page_compressed",
}
_OPTIONS |= {
    "page_compression_level",
    "encryption",
    "encrypted",
    "encryption_key_id",
    "insert_method",
    "engine_attribute",
    "secondary_engine_attribute",
}
_OPTIONS |= {
    "algorithm",
    "lock",
    "force",
    "tablespace",
    "storage",
    "connection",
    "password",
    "transactional",
    "autoextend_size",
    "start",
    "data",
    "directory",
}
_OPTIONS |= {
    "default",
    "character",
    "charset",
    "collate",
    "secondary_engine",
    "ietf_quotes",
    "sequence",
    "itef_quotes",
    "engine",
    "type",
}
_REFERENCE_ACTIONS = {"cascade", "null", "default"}


class ClauseSeverity(IntEnum):
    """What a clause does, in ascending order of severity."""

    HARMLESS = 0
    INDEX = 1
    MODIFY = 2
    ADD = 3
    ALTER = 4
    REMOVE = 5


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """An added column: its name, and the tokens of its definition."""

    name: str
    definition: tuple[SqlToken, ...]

    @property
    def text(self) -> str:
        """The definition as readable text, for messages."""
        return " ".join(t.raw for t in self.definition)


@dataclass(frozen=True, kw_only=True, slots=True)
class Alteration:
    """The effect of all clauses together.

    `modified` are definitions of columns that keep their names, `others` the tables named besides
    the altered one.
    """

    severity: ClauseSeverity
    added: tuple[AddedColumn, ...] = ()
    modified: tuple[AddedColumn, ...] = ()
    engine: str | None = None
    cascades: bool = False
    others: tuple[tuple[str, str], ...] = ()


def parse_alteration(found: list[SqlToken], database: str) -> Alteration:
    """Return the combined effect of the clauses of an ALTER TABLE."""
    combined, parts = Alteration(severity=ClauseSeverity.HARMLESS), clauses(found)
    if parts == [[]]:
        return combined
    # Whether single names belong to the previous clause: partitions, columns of ORDER BY.
    listing = False
    for part in parts:
        if listing and len(part) == 1 and part[0].kind is not SqlTokenKind.MARK:
            continue
        words = [t.value if t.kind is SqlTokenKind.WORD else "" for t in part[:2]]
        listing = "partition" in words or words[:1] == ["order"]
        combined = _combine(combined, _clause(part, database))
    return combined


def _combine(one: Alteration, two: Alteration) -> Alteration:
    return Alteration(
        severity=max(one.severity, two.severity),
        added=one.added + two.added,
        modified=one.modified + two.modified,
        engine=two.engine or one.engine,
        cascades=one.cascades or two.cascades,
        others=one.others + two.others,
    )


def _clause(part: list[SqlToken], database: str) -> Alteration:
    cursor = Cursor(list(part))
    verb = cursor.word()
    cursor.take(verb)
    match verb:
        case "add":
            return _add(cursor)
        case "drop":
            return Alteration(severity=_drop(cursor))
        case "modify" | "change":
            return _modify(cursor, verb)
        case "rename":
            return _rename(cursor, database)
        case "exchange" | "convert":
            return _exchange(cursor, database, verb)
        case "truncate" | "discard" | "import":
            return Alteration(severity=ClauseSeverity.REMOVE)
        case _ if verb in _HARMLESS_VERBS or (verb, cursor.word()) in _HARMLESS_PAIRS:
            return Alteration(severity=ClauseSeverity.HARMLESS)
        case _:
            return _options(part)


def _add(cursor: Cursor) -> Alteration:
    following = cursor.rest[1].value if len(cursor.rest) > 1 else ""
    match cursor.word():
        case "constraint" | "primary" | "unique" | "foreign" | "check":
            return _constraint(cursor)
        case word if word in _INDEXES:
            return Alteration(severity=ClauseSeverity.HARMLESS)
        case "partition":
            return Alteration(severity=ClauseSeverity.HARMLESS)
        case "period" | "system" if following in ("for", "versioning"):
            return Alteration(severity=ClauseSeverity.ALTER)
    cursor.take("column")
    cursor.skip_exists()
    if not cursor.mark("("):
        return _added(cursor)
    combined = Alteration(severity=ClauseSeverity.HARMLESS)
    for part in clauses(
        cursor.rest[:-1] if cursor.rest and cursor.rest[-1].raw == ")" else cursor.rest
    ):
        inner = Cursor(list(part))
        is_index = inner.word() in _INDEXES | {
            "constraint",
            "primary",
            "unique",
            "foreign",
            "check",
        }
        combined = _combine(combined, _add(inner) if is_index else _added(inner))
    return combined


def _added(cursor: Cursor) -> Alteration:
    name = cursor.name()
    if not name or not cursor.rest:
        return Alteration(severity=ClauseSeverity.ALTER)
    words = {t.value for t in cursor.rest if t.kind is SqlTokenKind.WORD}
    keyed = "primary" in words or (
        "key" in words and "unique" not in words
    )  # `int key` is a primary key
    column = AddedColumn(name, tuple(cursor.rest))
    return Alteration(
        severity=ClauseSeverity.ALTER if keyed else ClauseSeverity.ADD,
        added=(column,),
        cascades="references" in words,
    )


def _constraint(cursor: Cursor) -> Alteration:
    words = [t.value for t in cursor.rest if t.kind is SqlTokenKind.WORD]
    if "foreign" in words or "references" in words:
        return Alteration(
            severity=ClauseSeverity.HARMLESS, cascades=bool(_REFERENCE_ACTIONS & set(words))
        )
    if "primary" in words[:3]:
        return Alteration(severity=ClauseSeverity.ALTER)
    return Alteration(
        severity=ClauseSeverity.INDEX if "unique" in words[:3] else ClauseSeverity.HARMLESS
    )


def _drop(cursor: Cursor) -> ClauseSeverity:
    kind = cursor.word()
    following = cursor.rest[1].value.lower() if len(cursor.rest) > 1 else ""
    match kind:
        case "index" | "key" | "constraint":
            names = {t.value.lower() for t in cursor.rest[1:]}
            return ClauseSeverity.ALTER if "primary" in names else ClauseSeverity.INDEX
        case "foreign" | "check":
            return ClauseSeverity.HARMLESS
        case "partition":
            return ClauseSeverity.REMOVE
        case "primary" | "system" | "period" if following in ("key", "versioning", "for"):
            return ClauseSeverity.ALTER
        case _:
            return ClauseSeverity.ALTER  # a column


def _modify(cursor: Cursor, verb: str) -> Alteration:
    cursor.take("column")
    cursor.skip_exists()
    old = cursor.name()
    new = cursor.name() if verb == "change" else old
    if (
        not old
        or not new
        or old != new
        or any(t.kind is SqlTokenKind.WORD and t.value in ("first", "after") for t in cursor.rest)
    ):
        return Alteration(severity=ClauseSeverity.ALTER)
    return Alteration(
        severity=ClauseSeverity.MODIFY, modified=(AddedColumn(new, tuple(cursor.rest)),)
    )


def _rename(cursor: Cursor, database: str) -> Alteration:
    if cursor.word() in ("index", "key"):
        return Alteration(severity=ClauseSeverity.HARMLESS)
    if cursor.take("column"):
        return Alteration(severity=ClauseSeverity.ALTER)
    cursor.skip("to", "as")
    cursor.mark("=")
    path = cursor.path(database)
    return Alteration(severity=ClauseSeverity.REMOVE, others=(path,) if path is not None else ())


def _exchange(cursor: Cursor, database: str, verb: str) -> Alteration:
    """Parse clauses that swap or convert.

    EXCHANGE PARTITION p WITH TABLE a, CONVERT TABLE a TO PARTITION p, CONVERT PARTITION p TO TABLE
    a; CONVERT TO CHARACTER SET.
    """
    if verb == "convert" and cursor.word() not in ("table", "partition"):
        return Alteration(severity=ClauseSeverity.ALTER)
    while cursor.rest and not cursor.take("table"):
        cursor.rest = cursor.rest[1:]
    path = cursor.path(database)
    return Alteration(severity=ClauseSeverity.REMOVE, others=(path,) if path is not None else ())


def _options(part: list[SqlToken]) -> Alteration:
    """Parse options of the table, as in `engine = innodb row_format = dynamic`."""
    cursor, engine = Cursor(list(part)), None
    while cursor.rest:
        word = cursor.word()
        if word == "partition":
            break
        if word not in _OPTIONS:
            return Alteration(severity=ClauseSeverity.ALTER)
        cursor.take(word)
        if word in ("default", "force") or (word == "start" and cursor.take("transaction")):
            continue
        cursor.skip("set", "directory")
        cursor.mark("=")
        value = cursor.name()
        if word in ("engine", "type"):
            engine = value
    return Alteration(severity=ClauseSeverity.HARMLESS, engine=engine)


_ALIASES = {
    "integer": "int",
    "int4": "int",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "int8": "bigint",
    "numeric": "decimal",
    "dec": "decimal",
}
_ALIASES |= {
    "fixed": "decimal",
    "real": "double",
    "float8": "double",
    "character": "char",
    "middleint": "mediumint",
}
_WHOLE = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_USUAL = {"decimal": "(10,0)", "char": "(1)", "binary": "(1)", "bit": "(1)", "year": "(4)"}
_NOT_PLAIN = {
    "as",
    "generated",
    "primary",
    "key",
    "unique",
    "references",
    "compressed",
    "auto_increment",
    "without",
    "row",
}


def same_definition(
    recorded_type: str, nullable: bool | None, definition: tuple[SqlToken, ...]
) -> bool:
    """Return whether a definition in a statement is certainly the recorded one.

    The character set is left to the catalogue.
    """
    words = [t.value for t in definition if t.kind is SqlTokenKind.WORD]
    if (
        not words
        or set(words) & _NOT_PLAIN
        or words[0] in ("timestamp", "bool", "boolean", "national", "nchar", "nvarchar", "serial")
    ):
        return False
    if (
        nullable is None
        or ("not" in words and words[words.index("not") + 1 : words.index("not") + 2] == ["null"])
        == nullable
    ):
        return False
    return _normal("".join(_type_text(definition))) == _normal(recorded_type)


def _type_text(definition: tuple[SqlToken, ...]) -> list[str]:
    """Return the type with its parameters and signs."""
    parts = [definition[0].raw]
    rest = list(definition[1:])
    if rest and rest[0].raw == "(":
        end = next((n for n, t in enumerate(rest) if t.raw == ")"), len(rest) - 1)
        parts += [t.raw for t in rest[: end + 1]]
        rest = rest[end + 1 :]
    for token in rest:
        if token.value not in ("unsigned", "zerofill", "signed", "precision"):
            break
        parts.append(f" {token.value}")
    return parts


def _normal(text: str) -> tuple[str, str, bool, bool, tuple[str, ...]]:
    """Return type, parameters, signs and labels in a comparable form.

    The display width of integers is ignored, except for tinyint(1), which is a boolean.
    """
    head = re.match(r"\s*(\w+)\s*(\([^)]*\))?", text)
    word = head[1].lower() if head else ""
    word = _ALIASES.get(word, word)
    labels = LogColumn("", text).labels if word in ("enum", "set") else ()
    sizes = "" if labels or head is None else re.sub(r"\s", "", head[2] or "")
    if word in _WHOLE:
        sizes = "(1)" if word == "tinyint" and sizes == "(1)" else ""
    if word == "decimal" and sizes and "," not in sizes:
        sizes = sizes[:-1] + ",0)"
    tail = text.lower() if not labels else ""
    return (
        word,
        sizes or _USUAL.get(word, ""),
        "unsigned" in tail or "zerofill" in tail,
        "zerofill" in tail,
        labels,
    )
