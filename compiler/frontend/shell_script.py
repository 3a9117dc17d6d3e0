"""The commands that a script runs, in order, with the values of variables at that point.

A variable that a branch or a loop sets is unknown after it, unless all branches set the same value.
It is also unknown in a branch that its written value would not take, as something else must set it
there. No command is run, no file is read, and no substitution is guessed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import normpath
from typing import Final

from msgspec import Struct, field

from tunec.compiler.frontend.shell_tests import is_met, names_in
from tunec.compiler.frontend.shell_variables import (
    FOLDER,
    NOWHERE,
    UNKNOWN,
    Field,
    Value,
    assigned,
    assignment,
    fields,
    read_whole,
    unknown,
)
from tunec.compiler.frontend.shell_words import Chars, Command, Word, commands, joined

_MAX_VARIABLES: Final = 2_000
_MAX_BLOCKS: Final = 64
_MAX_NESTED: Final = 3

_EXPANDED: Final = re.compile(r"[*?\[]|\{[^{}$]*(?:\.\.|,)[^{}]*\}")
"""A word that the shell expands to several: `{0..7}`, `configs/*.yaml`."""
_OPENING: Final = frozenset({"if", "while", "until", "for", "select", "case", "{", "function"})
_CLOSING: Final = frozenset({"fi", "done", "esac", "}"})
_BRANCHING: Final = frozenset({"else", "elif"})
_TESTING: Final = frozenset({"if", "elif"})
_CONTINUING: Final = frozenset({"then", "do", "!", "time"})
_DECLARING: Final = frozenset({"export", "declare", "local", "readonly", "typeset"})
_TESTS: Final = frozenset({"[", "[[", "test"})
_OF_CD: Final = frozenset({"--", "-P", "-L"})


class Run(Struct, frozen=True):
    """A started command: its arguments and its environment variables."""

    fields: tuple[Field, ...]
    environment: Mapping[str, Field]
    folder: str = ""
    """The directory in which it starts, relative to the script; empty if it is the same, or
    unknown."""


class Script(Struct, frozen=True):
    """The commands that a script starts, and the final values of its variables."""

    runs: tuple[Run, ...]
    variables: Mapping[str, Field]
    files: Mapping[str, str]
    """The texts of files that it writes, by path; empty if the text is unknown."""


def follow(source: Chars) -> Script:
    """Follow a script. Raises nothing, whatever the text is."""
    follower = _Follower()
    runs = tuple(follower.runs(source))
    held = {name: follower.shown(name) for name in follower.known if name != FOLDER}
    return Script(runs, held, follower.files)


class _Block(Struct):
    """A branch or loop: the variables before it, and the values that its branches share so far."""

    before: dict[str, Value]
    merged: dict[str, Value | None] | None = None
    has_every_way: bool = False
    """Whether an `else` covers all other cases."""
    is_apart: bool = False
    """Whether it is a subshell, whose variables and `cd` have no later effect."""
    tests: list[tuple[Sequence[Word], str]] = field(default_factory=list)
    """The commands of the current or last test."""
    is_tested: bool = False
    """Whether the test is still being read."""
    taken: set[str] = field(default_factory=set)
    """Variables in a test whose branch is taken, so that the other branches are not."""
    hidden: dict[str, tuple[Value, Value]] = field(default_factory=dict)
    """Variables that are unknown in this branch: the placeholder of each, and its value after
    it."""

    def merge(self, end: Mapping[str, Value]) -> None:
        """Merge the variables at the end of a branch; None means that branches differ."""
        if self.merged is None:
            self.merged = dict(end)
            return
        names = dict.fromkeys((*self.merged, *end))
        self.merged = {
            name: end.get(name) if _same(self.merged.get(name), end.get(name)) else None
            for name in names
        }


_WHOLE: Final = tuple(
    options
    for empty in ("''", '""')
    for options in (["-r", "-d", empty], ["-d", empty, "-r"], ["-rd", empty], ["-d", empty])
)
"""Options of `read` by which it reads to the end: bash manual 4.2."""


class _Follower(Struct):
    known: dict[str, Value] = field(default_factory=dict)
    written: dict[str, Chars] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    exports_all: bool = False
    blocks: list[_Block] = field(default_factory=list)
    too_deep: int = 0
    parentheses: int = 0
    nested: int = 0
    files: dict[str, str] = field(default_factory=dict)
    is_doubtful: bool = False
    """Whether the next command only runs if the previous one succeeds or fails."""

    def runs(self, source: Chars) -> Iterator[Run]:
        for command in commands(source):
            words = self._structure(command)
            if self.blocks and self.blocks[-1].is_tested and words:
                self.blocks[-1].tests.append((words, command.end))
            if words and not self._closes_a_pattern(command):
                yield from self._command(words, command.document)
                self._write(words, command)
            self._ended(command)

    def shown(self, name: str) -> Field:
        """A variable's value as one text."""
        value = self.known[name]
        pieces = [value] if isinstance(value, Chars) else list(value[:1])
        return Field(joined(pieces) if pieces else Chars("", ()), self.written[name])

    # ── structure ────────────────────────────────────────────────────────────────────────────────

    def _structure(self, command: Command) -> Sequence[Word]:
        """Enter and leave branches, and return the words after their keywords."""
        words: Sequence[Word] = command.words
        while words:
            name = _plain(words[0])
            if name in _OPENING:
                self._open()
                if name not in ("if", "while", "until", "{"):
                    self._loop(words)
                    return ()
            elif name in _CLOSING:
                self._close()
            elif name in _BRANCHING:
                self._branch(name)
            elif name == "then":
                self._enter()
            elif name not in _CONTINUING:
                return words
            if name in _TESTING and self.blocks and not self.too_deep:
                self.blocks[-1].tests, self.blocks[-1].is_tested = [], True
            words = words[1:]
        return ()

    def _loop(self, words: Sequence[Word]) -> None:
        """`for NAME in WORDS`: the variable is known inside if there is one word."""
        if _plain(words[0]) not in ("for", "select") or len(words) < 2:
            return
        is_one = len(words) == 4 and not _EXPANDED.search(words[3].written.text)
        values = fields(words[3:4], self.known) if is_one else []
        written = words[3].written if len(values) == 1 else words[1].written
        value = values[0].chars if len(values) == 1 else unknown(written)
        self._set(_plain(words[1]), value, written)

    def _open(self, *, is_apart: bool = False) -> None:
        if len(self.blocks) < _MAX_BLOCKS:
            self.blocks.append(_Block(dict(self.known), is_apart=is_apart))
        else:
            self.too_deep += 1

    def _branch(self, name: str) -> None:
        if self.blocks and not self.too_deep:
            block = self.blocks[-1]
            block.merge(self._way_of(block))
            block.has_every_way |= name == "else"
            self.known = dict(block.before)
            self._forget(block, block.taken)

    def _enter(self) -> None:
        """Enter a branch: if its test fails for the known values, they are wrong, so unknown."""
        if not self.blocks or self.too_deep:
            return
        block = self.blocks[-1]
        block.is_tested, met = False, is_met(block.tests, self.known)
        asked = set(names_in(block.tests))
        if met:
            block.taken |= asked
        elif met is False:
            self._forget(block, asked)

    def _forget(self, block: _Block, names: set[str]) -> None:
        for name in names & self.known.keys():
            stand_in, held = unknown(self.written[name]), self.known[name]
            block.hidden[name] = (stand_in, held)
            self.known[name] = stand_in

    def _way_of(self, block: _Block) -> dict[str, Value]:
        """The variables at the end of a branch, with those that it made unknown and did not set."""
        for name, (stand_in, held) in block.hidden.items():
            if self.known.get(name) is stand_in:
                self.known[name] = held
        block.hidden = {}
        return self.known

    def _close(self) -> None:
        if self.too_deep:
            self.too_deep -= 1
        elif self.blocks:
            block = self.blocks.pop()
            if block.is_apart:
                self.known = block.before
                return
            block.merge(self._way_of(block))
            if not block.has_every_way:
                block.merge(block.before)
            self.known = {
                name: unknown(self.written[name]) if value is None else value
                for name, value in (block.merged or {}).items()
            }

    def _ended(self, command: Command) -> None:
        if command.end == "(" and not command.words:
            self.parentheses += 1
            self._open(is_apart=True)
        elif command.end == ")" and self.parentheses:
            self.parentheses -= 1
            self._close()
        first = _plain(command.words[0]) if command.words else ""
        is_test = first in _TESTS or (first in ("if", "!") and len(command.words) > 1)
        self.is_doubtful = command.end == "||" or (command.end == "&&" and is_test)

    def _closes_a_pattern(self, command: Command) -> bool:
        """`name)` in a `case`, and `name(` before the body of a function."""
        return (command.end == ")" and not self.parentheses) or command.end == "("

    # ── commands ─────────────────────────────────────────────────────────────────────────────────

    def _command(self, words: Sequence[Word], document: Word | None) -> Iterator[Run]:
        count = next((at for at, word in enumerate(words) if assignment(word) is None), len(words))
        if count == len(words):
            self._assign(words)
            return
        name = _plain(words[count])
        if name in _DECLARING:
            self._declare(name, words[count + 1 :])
        elif name == "set":
            self.exports_all |= any(_plain(word) == "-a" for word in words)
        elif name == "unset":
            for word in words[count + 1 :]:
                self.known.pop(_plain(word), None)
        elif name == "read":
            self._read(words[count + 1 :], document)
        elif name in ("cd", "pushd", "popd"):
            self._move(words[count + 1 :])
        else:
            yield from self._start(words[:count], words[count:])

    def _move(self, words: Sequence[Word]) -> None:
        """`cd FOLDER`: a path from the script's own folder starts there, others where it was."""
        given = [each for each in fields(words, self.known) if each.text not in _OF_CD]
        folder = given[0].chars if len(given) == 1 else Chars("", ())
        before = self.known.get(FOLDER, Chars(".", ()))
        at = unknown(words[0].written) if words else Chars(UNKNOWN, (0,))
        is_relative = folder.text and not folder.text.startswith(("/", "-", "~"))
        if is_relative and UNKNOWN not in folder.text and isinstance(before, Chars):
            is_own = folder.at[:1] == (NOWHERE,)
            path = normpath(folder.text if is_own else f"{before.text}/{folder.text}")
            at = at if UNKNOWN in path else Chars(path, (NOWHERE,) * len(path))
        self._set(FOLDER, at, words[0].written if words else at)

    def _write(self, words: Sequence[Word], command: Command) -> None:
        """`cat > FILE <<EOF`, `tee FILE <<EOF`, `echo TEXT > FILE`; a second text is unknown."""
        name = _plain(words[0])
        target = command.output if name in ("cat", "echo") else None
        target = words[1] if name == "tee" and len(words) == 2 else target
        paths = fields([target], self.known) if target is not None else []
        if len(paths) != 1 or not paths[0].is_known:
            return
        text = ""
        if command.document is not None and name != "echo":
            text = read_whole(command.document, self.known).text
        elif name == "echo":
            text = " ".join(each.text for each in fields(words[1:], self.known))
        path = paths[0].text
        self.files[path] = "" if self.files.get(path, text) != text else text

    def _read(self, words: Sequence[Word], document: Word | None) -> None:
        """`read -r -d '' NAME <<EOF` reads a text into one variable; other input is unknown."""
        options = [word.written.text for word in words[:-1]]
        is_whole = document is not None and options in _WHOLE
        for word in words[-1:] if is_whole else words:
            value = unknown(word.written)
            if is_whole and document is not None:
                value = read_whole(document, self.known)
            self._set(_plain(word), value, word.written)

    def _assign(self, words: Sequence[Word]) -> None:
        for word in words:
            name, _ = assignment(word) or ("", False)
            self._set(name, assigned(word, self.known), word.written)

    def _set(self, name: str, value: Value, written: Chars) -> None:
        if not name or (name not in self.known and len(self.known) >= _MAX_VARIABLES):
            return
        if self.is_doubtful and not _same(self.known.get(name), value):
            value = unknown(written)
        self.known[name] = value
        self.written[name] = written
        if self.exports_all:
            self.exported.add(name)

    def _declare(self, name: str, words: Sequence[Word]) -> None:
        given = [word for word in words if assignment(word) is not None]
        self._assign(given)
        exports = name == "export" or any(_plain(word) == "-x" for word in words)
        if exports:
            self.exported |= {(assignment(word) or (_plain(word),))[0] for word in words}

    def _start(self, given: Sequence[Word], words: Sequence[Word]) -> Iterator[Run]:
        arguments = fields(words, self.known)
        nested = _nested(arguments)
        if nested is not None and self.nested < _MAX_NESTED:
            self.nested += 1
            yield from self.runs(nested)
            self.nested -= 1
            return
        kept = {name: self.shown(name) for name in sorted(self.exported & self.known.keys())}
        for word in given:
            name, _ = assignment(word) or ("", False)
            value = assigned(word, self.known)
            text = value if isinstance(value, Chars) else unknown(word.written)
            kept[name] = Field(text, word.written)
        if arguments:
            at = self.known.get(FOLDER)
            folder = at.text if isinstance(at, Chars) and UNKNOWN not in at.text else ""
            yield Run(tuple(arguments), kept, folder)


def _same(one: Value | None, other: Value | None) -> bool:
    """Whether two values are the same text, at any places."""
    if isinstance(one, Chars) and isinstance(other, Chars):
        return one.text == other.text
    if isinstance(one, tuple) and isinstance(other, tuple):
        return [each.text for each in one] == [each.text for each in other]
    return False


def _plain(word: Word) -> str:
    """The text of a word with a single unquoted part; "" for any other."""
    if len(word.parts) != 1 or word.items is not None:
        return ""
    part = word.parts[0]
    return part.chars.text if part.kind == "literal" and not part.quoted else ""


def _nested(arguments: Sequence[Field]) -> Chars | None:
    """The script inside `eval ...` and `bash -c ...`, also after `srun` and similar."""
    texts = [each.text for each in arguments]
    if texts[:1] == ["eval"]:
        blank = Chars(" ", (0,))
        pieces = [piece for each in arguments[1:] for piece in (each.chars, blank)]
        return joined(pieces) if pieces else None
    for at, name in enumerate(texts[:-2]):
        if name.rpartition("/")[2] in ("bash", "sh") and texts[at + 1] in ("-c", "-lc"):
            return arguments[at + 2].chars
    return None
