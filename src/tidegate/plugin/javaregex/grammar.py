"""Translates groups, alternatives, quantifiers, flags, anchors and back references to Python."""

import re
from dataclasses import dataclass

from tidegate.plugin.javaregex.chars import DEPTH_MAX
from tidegate.plugin.javaregex.members import CharacterClassReader
from tidegate.plugin.javaregex.properties import ANY, LINE_ENDS

_REPEATS_MAX = 2**31 - 1
_FLAGS = "imsducxU"
_END_Z = r"(?:(?<!\r)(?=\n\Z)|(?=\r\n\Z)|(?=[\r\x85\u2028\u2029]\Z)|\Z)"
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the expression in Python, with its minimum and maximum number of characters."""

    text: str
    least: int = 1
    most: int | None = 1
    single: bool = False
    """Whether a quantifier can follow without a group around it."""

    def whole(self) -> str:
        return self.text if self.single else f"(?:{self.text})"


class RegexReader(CharacterClassReader):
    """Reads and translates the whole expression, from left to right."""

    __slots__ = ()

    def alternatives(self) -> Piece:
        """Read up to a closing parenthesis or the end. Flags set within end with it."""
        before = self.flags
        branches = [self._sequence()]
        while self.sign() == "|":
            self.at += 1
            branches.append(self._sequence())
        self.flags = before
        if len(branches) == 1:
            return branches[0]
        most = [branch.most for branch in branches]
        longest = None if None in most else max(m for m in most if m is not None)
        return Piece("|".join(b.text for b in branches), min(b.least for b in branches), longest)

    def _sequence(self) -> Piece:
        pieces: list[Piece] = []
        while (sign := self.sign()) is not None and sign not in ("|", ")"):
            atom = self._atom(sign)
            if atom is not None:
                pieces.append(self._quantified(atom))
        most = [piece.most for piece in pieces]
        longest = None if None in most else sum(m for m in most if m is not None)
        return Piece(
            "".join(piece.text for piece in pieces), sum(piece.least for piece in pieces), longest
        )

    def _atom(self, sign: str) -> Piece | None:
        """None for flags, which cannot be repeated."""
        if sign in ("*", "+", "?"):
            raise self.error(f"{sign} has nothing before it to repeat")
        if sign == "{":
            return Piece("", 0, 0)  # Java repeats an empty expression
        match sign:
            case "(":
                return self._group()
            case "[":
                return Piece(self.cased(self._set()), single=True)
            case "\\":
                return self._escape()
            case ".":
                self.at += 1
                return Piece(self._dot(), single=True)
            case "^" | "$":
                self.at += 1
                return Piece(self._anchor(sign), 0, 0)
        char = self.chars[self.at]
        self.at += 1
        return self._literal(char)

    def _literal(self, char: str) -> Piece:
        return Piece(self.cased(re.escape(char)), single=True)

    def cased(self, text: str) -> str:
        """Ignore case if the flags say so: of ASCII only, unless a Unicode flag is set."""
        if "i" not in self.flags:
            return text
        return f"(?i:{text})" if self.flags & {"u", "U"} else f"(?ai:{text})"

    def _dot(self) -> str:
        if "s" in self.flags:
            return ANY
        return r"[^\n]" if "d" in self.flags else f"[^{LINE_ENDS}]"

    def _anchor(self, sign: str) -> str:
        lines, unix = "m" in self.flags, "d" in self.flags
        if sign == "^":
            if not lines:
                return r"\A"
            others = "" if unix else r"|(?<=\r)(?!\n|\Z)|(?<=[\x85\u2028\u2029])(?!\Z)"
            return rf"(?:\A(?!\Z)|(?<=\n)(?!\Z){others})"
        if lines:
            return r"(?:(?=\n)|\Z)" if unix else r"(?:(?<!\r)(?=\n)|(?=[\r\x85\u2028\u2029])|\Z)"
        return r"(?=\n?\Z)" if unix else _END_Z

    def _quantified(self, piece: Piece) -> Piece:
        sign = self.sign()
        if sign not in ("*", "+", "?", "{"):
            return piece
        self.at += 1
        low, high, text = self._bounds(sign)
        if (
            piece.single
            and piece.least == piece.most == 1
            and sign in ("*", "+")
            and self.sign() not in ("?", "+")
        ):
            # Java treats this as a bounded length and so allows it in a look-behind.
            high = _REPEATS_MAX
        for mark in ("?", "+"):
            if self.sign() == mark:
                self.at += 1
                text += mark
                break
        most = None if high is None or piece.most is None else piece.most * high
        return Piece(piece.whole() + text, piece.least * low, most, single=False)

    def _bounds(self, sign: str) -> tuple[int, int | None, str]:
        if sign != "{":
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
            return low, high, sign
        body = re.match(r"(\d+)(,(\d*))?\}", "".join(self.chars[self.at : self.at + 30]))
        if body is None:
            raise self.error(
                "{ begins a repetition such as {2}, {2,} or {2,5}; write \\{ for the character"
            )
        low = int(body[1])
        upper: int | None = low
        if body[2] is not None:
            upper = int(body[3]) if body[3] else None
        if low > _REPEATS_MAX or (upper is not None and (upper < low or upper > _REPEATS_MAX)):
            raise self.error(f"{{{body[0]} is no range of repetitions")
        self.at += body.end()
        return low, upper, "{" + body[0]

    def _group(self) -> Piece | None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.error(f"there are more than {DEPTH_MAX} groups within one another")
        self.at += 1
        made = self._special_group() if self.skip("?") else self._capture("")
        self.depth -= 1
        return made

    def _inside(self) -> Piece:
        inside = self.alternatives()
        if self.sign() != ")":
            raise self.error("a group is not closed")
        self.at += 1
        return inside

    def _capture(self, name: str) -> Piece:
        self.groups += 1
        number = self.groups
        if name:
            self.names[name] = number
        inside = self._inside()
        self.closed.add(number)
        return Piece(f"({inside.text})", inside.least, inside.most, single=True)

    def _special_group(self) -> Piece | None:
        for head in (":", ">"):
            if self.skip(head):
                inside = self._inside()
                return Piece(f"(?{head}{inside.text})", inside.least, inside.most, single=True)
        for head in ("=", "!"):
            if self.skip(head):
                return Piece(f"(?{head}{self._inside().text})", 0, 0)
        for head in ("<=", "<!"):
            if self.skip(head):
                return self._behind(head)
        return self._named() if self.skip("<") else self._flagged()

    def _behind(self, head: str) -> Piece:
        inside = self._inside()
        if inside.most is None:
            raise self.error(
                "a look-behind has no maximum length: write {0,100} instead of * and +"
            )
        if inside.least != inside.most:
            self.mark_java_only("its look-behind has several lengths")
        return Piece(f"(?{head}{inside.text})", 0, 0)

    def _named(self) -> Piece:
        name = self.read_until(">", "the name of a group is not closed with >")
        if not _NAME.fullmatch(name):
            raise self.error(
                f"{name!r} is no name of a group: letters and digits of ASCII, a letter first"
            )
        if name in self.names:
            raise self.error(f"there are two groups {name!r}")
        return self._capture(name)

    def _flagged(self) -> Piece | None:
        """Read `(?i)`, which applies to the end of the enclosing group, or `(?i:...)`."""
        before, adding = self.flags, True
        while self.at < len(self.chars) and self.chars[self.at] not in "):":
            letter = self.chars[self.at]
            if letter == "-" and adding:
                adding = False
            elif letter in _FLAGS:
                self.flags = self.flags | {letter} if adding else self.flags - {letter}
            else:
                raise self.error(f"(?{letter} begins no group that Java knows")
            self.at += 1
        if self.at >= len(self.chars):
            raise self.error("a group is not closed")
        if "c" in self.flags:
            self.mark_java_only("it compares characters that are written in several ways")
        self.at += 1
        if self.chars[self.at - 1] == ")":
            return None
        inside = self._inside()
        self.flags = before
        return Piece(f"(?:{inside.text})", inside.least, inside.most, single=True)

    def _escape(self) -> Piece:
        begin = self.at
        letter = self._escaped_letter()
        if letter in "123456789":
            return self._reference(begin)
        if letter in "kAzZGbBRX":
            self.at += 1
            return self._named_reference() if letter == "k" else self._boundary(letter)
        members = self._escaped_members(letter)
        if members is not None:
            return Piece(self.cased(members), single=True)
        return self._literal(self._escaped_character(letter))

    def _reference(self, begin: int) -> Piece:
        number = int(self.chars[self.at])
        self.at += 1
        while (
            self.at < len(self.chars)
            and self.chars[self.at] in "0123456789"
            and not self.quoted[self.at]
        ):
            longer = number * 10 + int(self.chars[self.at])
            if longer > self.groups:
                break
            number = longer
            self.at += 1
        end = self.positions[self.at - 1] + 1
        self.references.append((self.positions[begin], end, number if number <= self.groups else 0))
        return self._referred(number)

    def _named_reference(self) -> Piece:
        if not self.skip("<"):
            raise self.error("\\k is followed by the name of a group: \\k<name>")
        name = self.read_until(">", "the name of a group is not closed with >")
        if name not in self.names:
            raise self.error(f"there is no group {name!r} before this")
        return self._referred(self.names[name])

    def _referred(self, number: int) -> Piece:
        if number in self.closed:
            return Piece(self.cased(f"(?:\\{number})"), 0, None, single=True)
        self.mark_java_only("it refers to a group that has not ended")
        return Piece("(?!)", 0, None)

    def _boundary(self, letter: str) -> Piece:
        if letter in "GX" or (letter == "b" and self.skip("{g}")):
            self.mark_java_only(f"Python has nothing like \\{letter}")
            return Piece("", 0, None if letter == "X" else 0)
        if letter == "R":
            return Piece(r"(?:\r\n|[\n\x0b\f\r\x85\u2028\u2029])", 1, 2, single=True)
        last = r"(?=\n?\Z)" if "d" in self.flags else _END_Z
        text = {"A": r"\A", "z": r"\Z", "Z": last, "b": r"(?u:\b)", "B": r"(?u:\B)"}[letter]
        return Piece(text, 0, 0)
