"""The expansion of a script's words, as far as the script determines it (bash manual 3.5).

U+0000 represents text that is only known at run time; bash itself allows none in a value.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.shell_arithmetic import computed
from tunec.compiler.frontend.shell_words import Chars, Part, Word, joined, whole

UNKNOWN: Final = "\0"
NOWHERE: Final = -1
"""The index of a computed character, which is not in the script."""
MAX_LENGTH: Final = 1 << 14
"""The most characters of one value: `A=$B$B`, `B=$C$C` and so on would double without end."""
MAX_FIELDS: Final = 20_000

_PARAMETER: Final = re.compile(
    r"\$(?:(?P<bare>\w+)|\{(?P<name>\w+)(?P<index>\[[^]]*\])?(?P<rest>.*)\})\Z", re.DOTALL
)
_DEFAULTS: Final = (":-", "-", ":=", "=")
_ALTERNATIVES: Final = (":+", "+")
_FLAG: Final = re.compile(r":?\+(--?[\w-]+=)\"?\$")
"""The alternative of a variable that begins as a flag, whose value is another variable's."""
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_BLANK: Final = " \t\n\r"
"""What divides words, and the returns of Windows line endings, which are a fault of their own."""
_BLANKS: Final = re.compile(f"[{_BLANK}]+")
_MAX_NESTED: Final = 8

Value = Chars | tuple[Chars, ...]
"""A variable's text, or the elements of an array."""


class Field(Struct, frozen=True):
    """One argument of a command, with the word that it comes from."""

    chars: Chars
    word: Chars

    @property
    def text(self) -> str:
        """The argument; it contains UNKNOWN for unknown parts."""
        return self.chars.text

    @property
    def is_known(self) -> bool:
        """Whether the script determines all of it."""
        return UNKNOWN not in self.chars.text

    def cut(self, start: int) -> "Field":
        """The rest after its first characters: the value in `--name=value`."""
        return Field(self.chars.cut(start), self.word)

    def place(self) -> tuple[int, int]:
        """The place where it is written: its own characters if contiguous, else the word."""
        at, around = self.chars.at, [index for index in self.word.at if index != NOWHERE]
        if not self.text:
            end = around[-1] + 1 if around else 0
            return end, end
        is_written = bool(at) and NOWHERE not in at and self.is_known
        if (
            is_written
            and at[-1] - at[0] == len(at) - 1
            and all(b - a == 1 for a, b in pairwise(at))
        ):
            return at[0], at[-1] + 1
        return (around[0], around[-1] + 1) if around else (0, 0)


def unknown(written: Chars) -> Chars:
    """The placeholder of an unknown part."""
    return Chars(UNKNOWN, written.at[:1] if written.at else (0,))


def assignment(word: Word) -> tuple[str, bool] | None:
    """The variable that a word assigns, and whether the value is appended."""
    if not word.parts or word.parts[0].kind != "literal" or word.parts[0].quoted:
        return None
    found = _ASSIGNED.match(word.parts[0].chars.text)
    return None if found is None else (found[1], bool(found[2]))


def assigned(word: Word, known: Mapping[str, Value]) -> Value:
    """The value of an assignment."""
    name, adds = assignment(word) or ("", False)
    before = known.get(name)
    if word.items is not None:
        items = tuple(field.chars for field in fields(word.items, known))
        old = before if isinstance(before, tuple) else () if before is None else (before,)
        return (*old, *items) if adds else items
    first = word.parts[0]
    length = len(name) + 1 + adds
    rest = (Part("literal", first.chars.cut(length), first.quoted), *word.parts[1:])
    text = _bounded(_text(rest, known), word.written)
    return text if not adds or before is None else _bounded([_scalar(before), text], word.written)


def read_whole(document: Word, known: Mapping[str, Value]) -> Chars:
    """A here-document as `read -d ''` assigns it to one variable: without surrounding blanks."""
    text = _bounded(_text(document.parts, known), document.written)
    start = len(text.text) - len(text.text.lstrip(_BLANK))
    return text.cut(start, max(len(text.text.rstrip(_BLANK)), start))


def fields(words: Iterable[Word], known: Mapping[str, Value]) -> list[Field]:
    """The arguments that words expand to: variables are replaced, unquoted ones split at blanks."""
    found: list[Field] = []
    for word in words:
        if len(found) >= MAX_FIELDS:
            break
        before = found[-1].text if found else ""
        found += list(_divided(word, known)) or _left_empty(word, before)
    return found


_OF_FLAGS: Final = re.compile(r"(?i)arg|opt|extra|flag|param")
"""Names of variables that may hold further flags, or none."""


def _left_empty(word: Word, before: str) -> list[Field]:
    """A placeholder for an empty variable after a flag, which the user must fill in.

    Expanded literally, the flag would have no value, which nobody intends.
    """
    is_behind = before.startswith("--") and "=" not in before
    is_variable = [each.kind for each in word.parts] == ["parameter"]
    if not (is_behind and is_variable) or _OF_FLAGS.search(word.written.text):
        return []
    return [Field(unknown(word.written), word.written)]


def _divided(word: Word, known: Mapping[str, Value]) -> Iterator[Field]:
    groups: list[list[Chars]] = []
    begins = True
    for part in word.parts:
        is_kept = part.kind == "literal" or part.quoted
        for number, value in enumerate(_values(part, known)):
            begins = begins or number > 0
            for place, piece in enumerate([value] if is_kept else _pieces(value)):
                begins = begins or place > 0
                if not is_kept and not piece.text:
                    continue
                if begins:
                    groups.append([])
                groups[-1].append(piece)
                begins = False
    yield from (Field(_bounded(group, word.written), word.written) for group in groups)


def _pieces(value: Chars) -> Iterator[Chars]:
    """A text split at its blanks; if it begins or ends with one, the first or last is empty."""
    start = 0
    for blank in _BLANKS.finditer(value.text):
        yield value.cut(start, blank.start())
        start = blank.end()
    yield value.cut(start)


def _text(parts: Sequence[Part], known: Mapping[str, Value]) -> list[Chars]:
    """The pieces of a value that is not split."""
    return [_scalar(value) for part in parts for value in _values(part, known)[:1]]


def _values(part: Part, known: Mapping[str, Value]) -> Sequence[Chars]:
    """The value of a word's part: one text, or each element of an array."""
    if part.kind == "literal":
        return (part.chars,)
    if part.kind == "opaque":
        return (_opaque(part.chars, known),)
    return _parameter(part.chars, known, 0)


def _opaque(written: Chars, known: Mapping[str, Value]) -> Chars:
    """A command's output, which is unknown, or a known sum."""
    text = written.text
    told = _EXPRESSION.fullmatch(text) or _BY_EXPR.fullmatch(text)
    if told is None:
        folder = _folder(text, known)
        return unknown(written) if folder is None else Chars(folder, (NOWHERE,) * len(folder))

    def value(name: str) -> str | None:
        held = known.get(name)
        return held.text if isinstance(held, Chars) and UNKNOWN not in held.text else None

    number = computed(told["sum"].replace("\\*", "*"), value)
    if number is None:
        return unknown(written)
    return Chars(str(number), (NOWHERE,) * len(str(number)))


_EXPRESSION: Final = re.compile(r"\$\(\((?P<sum>.*)\)\)", re.DOTALL)
_BY_EXPR: Final = re.compile(r"\$\(\s*expr (?P<sum>.*)\)")
"""coreutils 9.4 src/expr.c: whole numbers, as in `$(( ... ))`."""
FOLDER: Final = "PWD"
_SELF: Final = r"(?:\$0|\$\{0\}|\$BASH_SOURCE\b|\$\{BASH_SOURCE(?:\[0\])?(?::-\$\{?0\}?)?\})"
_PATH: Final = r"(?P<path>\x01|[\w./-]+)"
_THEN: Final = "(?:&&|;) ?"
_STEPS: Final = tuple(
    re.compile(each)
    for each in (
        rf"\$\( ?(?:readlink -[ef]|realpath(?: -[es])?)(?: --)? {_PATH} ?\)",
        rf"\$\( ?cd(?: -P)?(?: --)? {_PATH}(?: ?&?> ?/dev/null)?(?: 2>&1)? ?{_THEN}pwd(?: -P)? ?\)",
        rf"\$\( ?(?P<up>dirname)(?: --)? {_PATH} ?\)",
    )
)
_NAME: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_MOST_STEPS: Final = 8


def _folder(text: str, known: Mapping[str, Value]) -> str | None:
    """The path that `$(dirname "$0")` and similar commands print; None for other commands.

    It is relative to the script, or to its current directory.
    """
    if text in ("$(pwd)", "`pwd`"):
        return _path_of(FOLDER, known)
    if text.startswith("`"):
        text = f"$({text[1:-1]})"
    text = re.sub(_SELF, "\x01", re.sub(r"[\"'\s]+", " ", text.replace('"', "")))
    text = _NAME.sub(lambda found: _path_of(found[1] or found[2], known) or found[0], text)
    for _ in range(_MOST_STEPS):
        found = next((each for step in _STEPS if (each := step.search(text))), None)
        if found is None:
            break
        path = found["path"]
        if "up" in found.re.groupindex:
            path = "." if path == "\x01" else f"{path}/.."
        text = f"{text[: found.start()]}{path}{text[found.end() :]}"
    return text if re.fullmatch(r"\.[\w./-]*", text) else None


def _path_of(name: str, known: Mapping[str, Value]) -> str | None:
    """The relative path that a variable holds."""
    held = known.get(name)
    if held is None and name == FOLDER:
        return "."
    text = held.text if isinstance(held, Chars) else ""
    return text if re.fullmatch(r"[\w.][\w./-]*", text) else None


def _parameter(written: Chars, known: Mapping[str, Value], depth: int) -> Sequence[Chars]:
    found = _PARAMETER.match(written.text)
    if found is None or depth > _MAX_NESTED:
        return (unknown(written),)
    held, rest, index = (
        known.get(found["name"] or found["bare"]),
        found["rest"] or "",
        found["index"],
    )
    if written.text in ("${0%/*}", "${BASH_SOURCE%/*}", "${BASH_SOURCE[0]%/*}"):
        return (Chars(".", (NOWHERE,)),)
    if held is None and FOLDER in (found["name"], found["bare"]) and not rest:
        return (Chars(".", (NOWHERE,)),)
    if rest.startswith(_ALTERNATIVES):
        return _alternative(written, found, known, depth)
    if held is None or (not held and rest.startswith(":")):
        return _default(written, found, known, depth)
    if rest and not rest.startswith((*_DEFAULTS, ":?", "?")):
        return (unknown(written),)
    if index in ("[@]", "[*]"):
        return held if isinstance(held, tuple) else (held,)
    return (_element(held, (index or "[0]")[1:-1], written),)


def _alternative(
    written: Chars, found: re.Match[str], known: Mapping[str, Value], depth: int
) -> Sequence[Chars]:
    """`${NAME:+word}`: the word if the script sets the variable, else nothing.

    Of an unknown variable a flag with its value, `--port="${NAME}"`, hides that flag alone.
    """
    held = known.get(found["name"])
    if held is None or (found["rest"].startswith(":") and not _scalar(held).text):
        return (Chars("", ()),)
    if UNKNOWN not in _scalar(held).text:
        return _word_of(written, found, _ALTERNATIVES, known, depth)
    flag, start = _FLAG.match(found["rest"]), found.start("rest")
    if flag is None:
        return (unknown(written),)
    name = written.cut(start + flag.start(1), start + flag.end(1))
    return (joined((name, unknown(written))),)


def _default(
    written: Chars, found: re.Match[str], known: Mapping[str, Value], depth: int
) -> Sequence[Chars]:
    """`${NAME:-word}`: the word, if the script does not set the variable."""
    if not (found["rest"] or "").startswith(_DEFAULTS):
        return (unknown(written),)
    return _word_of(written, found, _DEFAULTS, known, depth)


def _word_of(
    written: Chars,
    found: re.Match[str],
    marks: Sequence[str],
    known: Mapping[str, Value],
    depth: int,
) -> Sequence[Chars]:
    """What the word behind one of the marks expands to."""
    mark = next(each for each in marks if found["rest"].startswith(each))
    start = found.start("rest") + len(mark)
    word = written.cut(start, found.end("rest"))
    if word.text in ('""', "''"):
        return (unknown(written),)  # an empty word stays a word, unlike nothing
    if word.text[:1] in ('"', "'") and word.text[-1:] == word.text[:1] and len(word.text) > 1:
        word = word.cut(1, len(word.text) - 1)
    if word.text.startswith("$") and _PARAMETER.match(word.text):
        return _parameter(word, known, depth + 1)
    return (unknown(written),) if set(word.text) & set("$`\\") else (word,)


def _element(held: Value, index: str, written: Chars) -> Chars:
    if isinstance(held, Chars):
        return held if index == "0" else unknown(written)
    number = int(index) if index.isdecimal() and len(index) < 7 else -1
    return held[number] if 0 <= number < len(held) else unknown(written)


def _scalar(value: Value) -> Chars:
    """A value as one text: for an array its first element."""
    if isinstance(value, Chars):
        return value
    return value[0] if value else whole("")


def _bounded(pieces: Sequence[Chars], written: Chars) -> Chars:
    if sum(len(piece.text) for piece in pieces) > MAX_LENGTH:
        return unknown(written)
    kept = [piece for piece in pieces if piece.text]
    return joined(kept) if kept else Chars("", ())
