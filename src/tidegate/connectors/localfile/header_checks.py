"""Check the beginning of a text file: its encoding, and its header against the schema.

Called by delimited.py (tasks) and sample_check.py (validation). Pure text and bytes, without Arrow:
`tidegate validate` reads headers too. Functions return the problem as a sentence, or an empty text.
"""

import codecs
import re
from collections.abc import Sequence

from tidegate.connectors.localfile.bad_rows import Leniency, excerpt

_BOMS = (
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF8, "UTF-8"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
_INSPECTED_BYTES = 4096
_LATIN_BYTES = {"UTF-32LE": (0, 4), "UTF-32BE": (3, 4), "UTF-16LE": (0, 2), "UTF-16BE": (1, 2)}
"""For Latin text: the index of the byte that is not zero, and the bytes of a character."""
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?")
_DELIMITERS = (",", ";", "\t", "|", "\x01")
_NAMES_MAX = 20


def bom_encoding(top: bytes) -> str:
    """Return the encoding that a byte order mark names; empty if there is none."""
    return next((name for mark, name in _BOMS if top.startswith(mark)), "")


def detect_encoding(top: bytes) -> str:
    """Detect a Unicode encoding by its byte order mark or its zero bytes; empty if unknown."""
    top = top[:_INSPECTED_BYTES]
    return bom_encoding(top) or _by_zeros(top)


def _by_zeros(top: bytes) -> str:
    if b"\0" not in top:
        return ""
    for name, (letter, unit) in _LATIN_BYTES.items():
        letters = top[letter::unit]
        others = [top[index::unit] for index in range(unit) if index != letter]
        if letters.count(0) * 20 <= len(letters) and all(
            zeros.count(0) * 2 > len(zeros) for zeros in others
        ):
            return name
    return ""


def encoding_problem(top: bytes, encoding: str) -> str:
    """Explain why a file that begins like this does not have this encoding."""
    given = _normalized(encoding)
    mark = bom_encoding(top)
    if mark and not _matches_bom(given, mark):
        return (
            f"begins with the byte order mark of {mark} and is read as {encoding}: set encoding ="
            f' "{mark}"'
        )
    top = top[:_INSPECTED_BYTES]
    wide = given.startswith(("utf16", "utf32"))
    if not mark and not wide:
        found = _by_zeros(top)
        return (
            f'seems to be written in {found} and is read as {encoding}: set encoding = "{found}"'
            if found
            else ""
        )
    if wide and not mark and len(top) > 3 and b"\0" not in top and _is_utf8(top):
        return f'has no zero bytes, so it is not written in {encoding}: set encoding = "UTF-8"'
    return ""


def _normalized(encoding: str) -> str:
    return codecs.lookup(encoding).name.replace("-", "").replace("_", "")


def _matches_bom(given: str, mark: str) -> bool:
    found = _normalized(mark)
    return (
        given in (found, found[:5], f"{found}sig")
        if found != "utf8"
        else given in ("utf8", "utf8sig", "ascii")
    )


def _is_utf8(top: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(top)
    except UnicodeDecodeError:
        return False
    return True


def column_indexes(header: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Find the field of each wanted column by name, preferring the exact case; -1 if missing."""
    folded = [name.lower() for name in header]
    exact = {name: i for i, name in reversed(list(enumerate(header)))}
    any_case = {name: i for i, name in reversed(list(enumerate(folded)))}
    return [exact.get(name, any_case.get(name.lower(), -1)) for name in wanted]


def header_problem(
    header: Sequence[str], wanted: Sequence[str], delimiter: str, *, fill_missing: bool = False
) -> str:
    """Explain why the columns of a schema cannot be found by the names of a header."""
    missing = [
        n for n, index in zip(wanted, column_indexes(header, wanted), strict=True) if index < 0
    ]
    twice = [name for name in wanted if _is_ambiguous(header, name)]
    if twice:
        return f"the header names {_listed(twice)} more than once: {_listed(header)}"
    if not missing or (fill_missing and len(missing) < len(wanted)):
        return ""
    text = f"the header has no column {_listed(missing)}; it is: {_listed(header)}"
    hint = delimiter_hint(header[0], delimiter) if len(header) == 1 else ""
    if hint:
        return f"{text}. The header has one column: {hint}"
    if any(_NUMBER.fullmatch(name) for name in header):
        return f"{text}. This line seems to be a row: set csv_use_header_line = false"
    if len(missing) == len(wanted):
        return f"{text}. This file has no column of the schema"
    return f'{text}. Correct the schema, or set missing_columns = "fill_null" to read null for them'


def _is_ambiguous(header: Sequence[str], name: str) -> bool:
    exact = header.count(name) if isinstance(header, list) else list(header).count(name)
    return exact > 1 or (not exact and [h.lower() for h in header].count(name.lower()) > 1)


def names_problem(header: Sequence[str]) -> str:
    """Explain why the names of a header cannot be the columns of a table without a schema."""
    if "" in header:
        return (
            f"column {list(header).index('') + 1} of the header has no name: {_listed(header)};"
            " add a schema"
        )
    folded = [name.lower() for name in header]
    twice = sorted({name for name in header if folded.count(name.lower()) > 1})
    return f"the header names {_listed(twice)} more than once: {_listed(header)}" if twice else ""


def skipped_problem(skipped: Sequence[str], columns: Sequence[str]) -> str:
    """Explain why a skipped header does not match the schema.

    Columns are read by position, and the header has the same names in another order.
    """
    found, given = [n.lower() for n in skipped], [n.lower() for n in columns]
    if found == given or sorted(found) != sorted(given) or len(set(found)) < len(found):
        return ""
    return (
        "the header line that is skipped names the columns in another order than the schema:"
        f" {_listed(skipped)}; set csv_use_header_line = true to find them by name, or bring the"
        " schema into this order"
    )


def first_row_problem(fields: Sequence[str], columns: Sequence[str]) -> str:
    """Report a first row that contains the names of the columns."""
    if len(columns) < 2 or [f.strip().lower() for f in fields] != [c.lower() for c in columns]:
        return ""
    return (
        "this row contains the names of the columns: set csv_use_header_line = true, or"
        " skip_header_row_number = 1"
    )


def delimiter_hint(line: str, delimiter: str) -> str:
    """Guess which other delimiter a line with a single field has."""
    counts = {d: line.count(d) for d in _DELIMITERS if d != delimiter}
    found = max(counts, key=lambda d: counts[d])
    if not counts[found]:
        return ""
    shown = {"\t": "\\t", "\x01": "\\001"}.get(found, found)
    times = "once" if counts[found] == 1 else f"{counts[found]} times"
    return f"it contains '{shown}' {times}, set field_delimiter = \"{shown}\""


def width_problem(count: int, width: int, line: str, delimiter: str, leniency: Leniency) -> str:
    """Explain why a row with so many fields does not fit."""
    if count == width or (leniency.fill_short if count < width else leniency.drop_extra):
        return ""
    fields = "1 field" if count == 1 else f"{count} fields"
    hint = delimiter_hint(line, delimiter) if count == 1 else ""
    option = 'short_rows = "fill_null"' if count < width else 'long_rows = "drop_extra"'
    return (
        f"the row has {fields} instead of {width}: {excerpt(line)};"
        f" {hint or option + ' accepts such rows'}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(
        repr(name) if len(name) <= 60 else repr(name[:57] + "...") for name in names[:_NAMES_MAX]
    )
    return f"{shown} and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else shown
