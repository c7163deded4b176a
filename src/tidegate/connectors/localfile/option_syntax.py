"""Delimiters and time patterns of job files, translated for Python and Arrow.

Called by the checks of options.py, by the readers and by the writers of this folder. Pure text: no
files, no Arrow.
"""

import re

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}
_DIRECTIVES = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}
_TOKENS = re.compile(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>.)", re.DOTALL)


def unescape(text: str) -> str:
    r"""Resolve the escapes of a delimiter.

    `\t`, `\001`, `\u0001`, and `\|` as in regular expressions.
    """
    return re.sub(r"\\(u[0-9a-fA-F]{4}|[0-7]{3}|.)", _unescape, text, flags=re.DOTALL)


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) == 5:
        return chr(int(code[1:], 16))
    if len(code) == 3:
        return chr(int(code, 8))
    return _ESCAPES.get(code, code)


def to_strptime(pattern: str) -> str:
    """Translate a Java time pattern (`yyyy-MM-dd HH:mm:ss`) for strptime, without fractions.

    ValueError names letters that have no counterpart.
    """
    parts = []
    for token in _TOKENS.finditer(pattern):
        letters = token["letters"]
        if letters is None:
            plain = token["quoted"] if token["quoted"] is not None else token["other"]
            parts.append((plain or "'").replace("%", "%%"))
        elif letters in _DIRECTIVES:
            parts.append(_DIRECTIVES[letters])
        elif set(letters) == {"S"}:
            parts = [*parts[:-1], parts[-1].removesuffix(".")] if parts else parts
        else:
            raise ValueError(
                f"{letters!r} in the time pattern {pattern!r} is not supported: use yyyy MM dd HH"
                " mm ss SSS"
            )
    return "".join(parts)


def fraction_digits(pattern: str) -> int:
    """Count the digits of a second's fraction in a Java time pattern (`HH:mm:ss.SSS`: 3)."""
    return max(
        (
            len(t["letters"])
            for t in _TOKENS.finditer(pattern)
            if t["letters"] and set(t["letters"]) == {"S"}
        ),
        default=0,
    )
