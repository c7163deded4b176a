r"""Translates escapes and sets such as `\\x41`, `\\w` and `[a-z&&[^b]]`.

Each becomes a Python expression that matches one character.
"""

import re
import unicodedata

from tidegate.plugin.javaregex.chars import DEPTH_MAX, Characters
from tidegate.plugin.javaregex.properties import ANY, UnknownProperty, escaped_set, property_set

_PLAIN_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\x07", "e": "\x1b"}


class CharacterClassReader(Characters):
    """Reads the parts of an expression that match a single character."""

    __slots__ = ()

    def _escaped_letter(self) -> str:
        self.at += 1
        if self.at >= len(self.chars):
            raise self.error("a backslash at the end: write \\\\ for one")
        return self.chars[self.at]

    def _escaped_members(self, letter: str) -> str | None:
        r"""The set of `\w`, `\p{...}` and similar; None for the escape of a single character."""
        if letter in "dDwWsShHvV":
            self.at += 1
            return escaped_set(letter, unicode="U" in self.flags)
        if letter not in "pP":
            return None
        self.at += 1
        if self.at >= len(self.chars):
            raise self.error("the name of a property is missing")
        begin = self.at
        if self.skip("{"):
            name = self.read_until("}", "the name of a property is not closed with }")
        else:
            name = self.chars[self.at]
            self.at += 1
        try:
            members = property_set(name)
        except UnknownProperty as error:
            self.at = begin
            raise self.error(str(error)) from None
        if members is None:
            self.mark_java_only(f"Python does not know which characters are {name}")
        return _negated(members or ANY) if letter == "P" else members or ANY

    def _escaped_character(self, letter: str) -> str:
        self.at += 1
        if letter in _PLAIN_ESCAPES:
            return _PLAIN_ESCAPES[letter]
        if letter in "0xucN":
            return self._coded(letter)
        if letter.isascii() and letter.isalpha():
            self.at -= 1
            raise self.error(f"\\{letter} is no escape that Java knows")
        if letter.isascii() and letter.isdigit():
            raise self.error("a back reference cannot be in a set")
        return letter

    def _coded(self, letter: str) -> str:
        """Read a character given by its number or name."""
        rest = "".join(self.chars[self.at : self.at + 100])
        patterns = {
            "0": r"([0-3][0-7]{2}|[0-7]{1,2})",
            "x": r"([0-9a-fA-F]{2})|\{([0-9a-fA-F]+)\}",
            "u": r"([0-9a-fA-F]{4})",
            "c": r"([\s\S])",
            "N": r"\{([A-Za-z0-9 -]+)\}",
        }
        found = re.match(patterns[letter], rest)
        if found is None:
            raise self.error(f"what follows \\{letter} names no character")
        self.at += found.end()
        try:
            return self._named_character(letter, found)
        except (KeyError, ValueError, OverflowError):
            raise self.error(f"what follows \\{letter} names no character") from None

    def _named_character(self, letter: str, found: re.Match[str]) -> str:
        match letter:
            case "0":
                return chr(int(found[1], 8))
            case "x":
                return chr(int(found[1] or found[2], 16))
            case "c":
                return chr(ord(found[1]) ^ 64)
            case "N":
                return unicodedata.lookup(found[1])
        code = int(found[1], 16)
        low = re.match(
            r"\\u(d[c-f][0-9a-f]{2})", "".join(self.chars[self.at : self.at + 6]), re.IGNORECASE
        )
        if 0xD800 <= code < 0xDC00 and low:  # two halves of one character
            self.at += 6
            return chr(0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00)
        return chr(code)

    def _set(self) -> str:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.error(f"there are more than {DEPTH_MAX} sets within one another")
        self.at += 1
        negated = self.skip("^")
        members = self._members()
        self.at += 1
        self.depth -= 1
        return _negated(members) if negated else members

    def _members(self) -> str:
        """Read up to the closing bracket, without it."""
        made: list[str] = []
        while (sign := self.sign()) is not None:
            if sign == "]" and made:
                return _united(made)
            if sign == "[":
                made.append(self._set())
            elif sign == "&" and self.skip("&&"):
                made = self._intersected(made)
            else:
                made.append(self._member())
        raise self.error("a set is not closed with ]")

    def _intersected(self, left: list[str]) -> list[str]:
        right: list[str] = []
        while (sign := self.sign()) not in ("]", "&", None):
            if sign == "[":
                right.append(self._set())
            else:
                if right:
                    self.mark_java_only("it mixes sets and characters after &&")
                right = [self._members()]
        if not right:
            if not left:
                raise self.error("&& has nothing on either side")
            return left
        return [f"(?:(?={_united(left)}){_united(right)})"] if left else right

    def _member(self) -> str:
        """Read one character, a range, or an escape that is a set itself."""
        first = self._member_character()
        if len(first) > 1:
            return first
        if self.sign() == "-":
            after = self.at + 1
            open_end = after < len(self.chars) and (
                self.quoted[after] or self.chars[after] not in "[]"
            )
            if open_end:
                self.at = after
                last = self._member_character()
                if len(last) > 1 or last < first:
                    raise self.error("a range of characters ends before it begins")
                return f"[\\U{ord(first):08x}-\\U{ord(last):08x}]"
        return f"[\\U{ord(first):08x}]"

    def _member_character(self) -> str:
        """Read a character; a longer result is a set."""
        sign = self.sign()
        if sign is None:
            raise self.error("a set is not closed with ]")
        if sign != "\\":
            self.at += 1
            return self.chars[self.at - 1]
        letter = self._escaped_letter()
        members = self._escaped_members(letter)
        return self._escaped_character(letter) if members is None else members


def _united(sets: list[str]) -> str:
    return sets[0] if len(sets) == 1 else f"(?:{'|'.join(sets)})"


def _negated(members: str) -> str:
    return f"(?:(?!{members}){ANY})"
