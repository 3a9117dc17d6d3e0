"""Shell text to commands and words, split as in bash (bash manual 3.1 and 3.2), nothing expanded.

Every character keeps its index in the file, so that a word from a variable still knows where it was
written. The text is read in a single pass.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct, field

from tunec.schemas.caches import cached

BATCH_ENDINGS: Final = (".slurm", ".slrm", ".sbatch")
"""Endings of the names of scripts that are written for Slurm."""

MAX_COMMANDS: Final = 5_000
MAX_WORDS: Final = 20_000
MAX_PARTS: Final = 100_000
"""The most parts of a script; the rest is not read."""

_BLANK: Final = re.compile(r"(?:[ \t\r]|\\(?:\r?\n|\Z))*")
_PLAIN: Final = re.compile(r"""[^\s'"\\$`;&|<>()]+""")
_END: Final = re.compile(r"&&|\|\||;;&?|\|&|[;&|\n()]")
_REDIRECTION: Final = re.compile(r"\d*(?:<<<|<<-|<<|>>|>&|<&|>\||<>|>|<)|&>>?")
_NAME: Final = re.compile(r"\$(?:[A-Za-z_]\w*|[0-9@*#?$!-])")
_ARRAY: Final = re.compile(r"[A-Za-z_]\w*\+?=\Z")
_IN_DOUBLE: Final = re.compile(r"""[^"\\$`]+""")
_CONTINUED: Final = re.compile(r"\\(?:\r?\n|\Z)")
_ESCAPED_IN_DOUBLE: Final = ('"', "\\", "$", "`")
_BRACKETS: Final = {"{": "}", "(": ")"}
_SUMS: Final[tuple[list[str], ...]] = ([], ["for"])
"""Words before `((`, in which the shell evaluates arithmetic and no commands."""
_BETWEEN_ITEMS: Final = "\n;&|<>("


class Chars(Struct, frozen=True):
    """A text, and the index in the file of each of its characters."""

    text: str
    at: Sequence[int]

    def cut(self, start: int, end: int | None = None) -> "Chars":
        """A part of it."""
        return Chars(self.text[start:end], self.at[start:end])


def whole(text: str) -> Chars:
    """A file's text."""
    return Chars(text, range(len(text)))


def joined(pieces: Sequence[Chars]) -> Chars:
    """Pieces, concatenated."""
    if len(pieces) == 1:
        return pieces[0]
    places = tuple(index for piece in pieces for index in piece.at)
    return Chars("".join(piece.text for piece in pieces), places)


class Part(Struct, frozen=True):
    """A part of a word.

    Literal text, a parameter (`$X`, `${X:-1}`), or text that is only known at run time
    (`$(nproc)`).
    """

    kind: Literal["literal", "parameter", "opaque"]
    chars: Chars
    """Without its quotes."""
    quoted: bool


class Word(Struct, frozen=True):
    """A word, as its parts; `items` holds the words of an array assignment, `A=(x y)`."""

    parts: tuple[Part, ...]
    written: Chars
    items: "tuple[Word, ...] | None" = None


class Command(Struct, frozen=True):
    """Words up to an operator; `end` is that operator, or a line break."""

    words: tuple[Word, ...]
    end: str
    document: Word | None = None
    """The here-document that it reads, as one word in double quotes, or in single ones."""
    output: Word | None = None
    """The file that it overwrites."""


@cached(8)
def commands(source: Chars) -> tuple[Command, ...]:
    """The commands of a script in order. Comments and redirections are left out."""
    return tuple(_commands(source))


def _commands(source: Chars) -> Iterator[Command]:
    reader = _Reader(source)
    count = words = 0
    while reader.at < len(reader.text) and count < MAX_COMMANDS and words < MAX_WORDS:
        command = reader.command()
        count, words = count + 1, words + len(command.words)
        yield command


class _Reader(Struct):
    source: Chars
    at: int = 0
    parts: int = 0
    documents: list[str] = field(default_factory=list)
    """Last lines of the here-documents that begin on the next line."""
    document: Word | None = None
    output: Word | None = None
    text: str = ""

    def __post_init__(self) -> None:
        self.text = self.source.text

    def command(self) -> Command:
        words: list[Word] = []
        self.document = self.output = None
        while len(words) < MAX_WORDS:
            self._blank()
            if self.at >= len(self.text):
                break
            if self.text[self.at] == "#":
                self.at = self._line_end()
                continue
            redirection = _REDIRECTION.match(self.text, self.at)
            if redirection is not None:
                self._redirect(redirection)
                continue
            end = _END.match(self.text, self.at)
            if end is not None:
                return self._ended(words, end)
            words.append(self._word())
        return Command(tuple(words), "\n", self.document, self.output)

    def _ended(self, words: list[Word], end: re.Match[str]) -> Command:
        if self.text.startswith("((", self.at) and [w.written.text for w in words] in _SUMS:
            self._brackets("(")
            return Command((), ";")
        self.at = end.end()
        if end[0] == "\n":
            self._skip_documents()
        return Command(tuple(words), end[0], self.document, self.output)

    # ── words ────────────────────────────────────────────────────────────────────────────────────

    def _word(self) -> Word:
        start, parts = self.at, list[Part]()
        while self.at < len(self.text) and self._take(parts):
            pass
        items = None
        if self._peek() == "(" and _ARRAY.match(self.text[start : self.at]):
            items = self._items()
        return Word(tuple(parts), self.source.cut(start, self.at), items)

    def _items(self) -> tuple[Word, ...]:
        self.at += 1
        found: list[Word] = []
        while len(found) < MAX_WORDS:
            self._blank()
            character = self._peek()
            if character == "#":
                self.at = self._line_end()
            elif character in ("", ")"):
                break
            elif character in _BETWEEN_ITEMS:
                self.at += 1
            else:
                found.append(self._word())
        self.at += 1
        return tuple(found)

    def _take(self, parts: list[Part]) -> bool:
        """Add the next part of a word; return whether the word continues."""
        self.parts += 1
        if self.parts > MAX_PARTS:
            self.at = len(self.text)
            return False
        plain = _PLAIN.match(self.text, self.at)
        if plain is not None:
            self.at = plain.end()
            parts.append(self._literal(plain.start(), plain.end(), quoted=False))
            return True
        character = self._peek()
        if character == "'":
            parts.append(self._single())
        elif character == '"':
            self._double(parts)
        elif character in ("$", "`"):
            parts.append(self._dollar(quoted=False))
        elif character == "\\" and not _CONTINUED.match(self.text, self.at):
            parts.append(self._escaped())
        else:
            return False
        return True

    def _literal(self, start: int, end: int, *, quoted: bool) -> Part:
        return Part("literal", self.source.cut(start, end), quoted)

    def _single(self) -> Part:
        start = self.at + 1
        end = self.text.find("'", start)
        end = len(self.text) if end < 0 else end
        self.at = end + 1
        return self._literal(start, end, quoted=True)

    def _double(self, parts: list[Part]) -> None:
        self.at += 1
        before = len(parts)
        while self.at < len(self.text) and self.text[self.at] != '"':
            plain = _IN_DOUBLE.match(self.text, self.at)
            if plain is not None:
                self.at = plain.end()
                parts.append(self._literal(plain.start(), plain.end(), quoted=True))
            elif self.text[self.at] == "\\":
                self._backslash_in_double(parts)
            else:
                parts.append(self._dollar(quoted=True))
        if len(parts) == before:
            parts.append(self._literal(self.at, self.at, quoted=True))
        self.at += 1

    def _backslash_in_double(self, parts: list[Part]) -> None:
        """Bash manual 3.1.2.3: a backslash escapes five characters, and is literal otherwise."""
        continued = _CONTINUED.match(self.text, self.at)
        if continued is not None:
            self.at = continued.end()
        elif self.text[self.at + 1 : self.at + 2] in _ESCAPED_IN_DOUBLE:
            parts.append(self._escaped())
        else:
            parts.append(self._literal(self.at, self.at + 1, quoted=True))
            self.at += 1

    def _escaped(self) -> Part:
        start = self.at + 1
        self.at = min(start + 1, len(self.text))
        return self._literal(start, self.at, quoted=True)

    # ── what running the script would put in ─────────────────────────────────────────────────────

    def _dollar(self, *, quoted: bool) -> Part:
        start, following = self.at, self.text[self.at + 1 : self.at + 2]
        name = _NAME.match(self.text, start)
        kind: Literal["literal", "parameter", "opaque"] = "opaque"
        if self.text[start] == "`":
            self._to("`")
        elif name is not None:
            kind, self.at = "parameter", name.end()
        elif following in _BRACKETS:
            kind = "parameter" if following == "{" else "opaque"
            self.at += 1
            self._brackets(following)
        elif following == "'" and not quoted:
            self.at += 1
            self._to("'")
        else:  # a dollar sign by itself, or before a text in double quotes
            kind, self.at = "literal", start + 1
        return Part(kind, self.source.cut(start, self.at), quoted)

    def _to(self, mark: str) -> None:
        """Move behind the next `mark` that no backslash escapes, or to the text's end."""
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != mark:
            self.at += 2 if self.text[self.at] == "\\" else 1
        self.at = min(self.at + 1, len(self.text))

    def _brackets(self, opening: str) -> None:
        """Move behind the bracket that closes the one at this place."""
        closing, depth = _BRACKETS[opening], 0
        while self.at < len(self.text):
            character = self.text[self.at]
            depth += (character == opening) - (character == closing)
            if character == "'" and opening == "(":
                self._to("'")
            else:
                self.at += 2 if character == "\\" else 1
            if depth == 0:
                break
        self.at = min(self.at, len(self.text))

    # ── what is left out ─────────────────────────────────────────────────────────────────────────

    def _redirect(self, found: re.Match[str]) -> None:
        self.at = found.end()
        self._blank()
        starts_word = self.at < len(self.text) and not _END.match(self.text, self.at)
        target = self._word() if starts_word and self._peek() not in "<>" else None
        if found[0] in (">", ">|", "1>"):
            self.output = target
        if found[0].lstrip("0123456789") in ("<<", "<<-") and target is not None:
            last = "".join(part.chars.text for part in target.parts)
            if not self.documents:
                self.document = self._document(last, is_plain=target.written.text != last)
            self.documents.append(last)

    def _document(self, last: str, *, is_plain: bool) -> Word:
        """The text of the next lines until the last one; not expanded if its name is quoted."""
        start = end = min(self._line_end() + 1, len(self.text))
        while end < len(self.text):
            following = self.text.find("\n", end) + 1 or len(self.text)
            if self.text[end:following].strip() == last:
                break
            end = following
        body = self.source.cut(start, end)
        if is_plain:
            return Word((Part("literal", body, True),), body)
        return Word(tuple(_Reader(body).expanded()), body)

    def expanded(self) -> list[Part]:
        """The parts of a here-document's text, in which double quotes are literal."""
        parts: list[Part] = []
        while self.at < len(self.text) and len(parts) < MAX_PARTS:
            plain = _IN_DOUBLE.match(self.text, self.at)
            if plain is not None or self._peek() == '"':
                end = plain.end() if plain is not None else self.at + 1
                parts.append(self._literal(self.at, end, quoted=True))
                self.at = end
            elif self._peek() == "\\":
                self._backslash_in_double(parts)
            else:
                parts.append(self._dollar(quoted=True))
        return parts

    def _skip_documents(self) -> None:
        for last in self.documents:
            while self.at < len(self.text):
                start, self.at = self.at, self._line_end() + 1
                if self.text[start : self.at].strip() == last:
                    break
        self.documents.clear()

    def _line_end(self) -> int:
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end

    def _blank(self) -> None:
        blank = _BLANK.match(self.text, self.at)
        if blank is not None:
            self.at = blank.end()

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]
