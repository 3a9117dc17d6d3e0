"""Command lines that the shell reads differently from what is meant."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.nodes import Node, place
from tunec.compiler.frontend.shell_words import Command, Word
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.facts.launch import COMMANDS, launches
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.source import Span, lines_of
from tunec.targets.launch.lines import at_offset, commands_of, scripts
from tunec.targets.launch.rules.launcher_values import has_word_for_script

_NAME: Final = re.compile(r"[A-Za-z_]\w*")


@rule("error", "silent", consumers=("bash",), reads=COMMANDS)
def assignment_with_blanks(run: LintContext) -> Iterator[Finding]:
    """A shell script sets a variable with spaces around the `=`."""
    for document in scripts(run):
        for command in commands_of(document):
            rest = _rest_of_list(command)
            if rest is not None:
                yield _cut_list(document, *rest)
            word = _name(command)
            if word is None:
                continue
            text = word.written.text
            yield Finding(
                f"`{text}` is taken for a command: there is a space before the =",
                (at_offset(document, word.written.at[0], len(text), "no assignment"),),
                ("the shell does not find it, and continues with the variable unchanged",),
                f"write {text}=... without spaces",
            )


def _rest_of_list(command: Command) -> tuple[Word, Word] | None:
    """A list like `NAME=0,` and the number after the blank, which the shell starts as a program."""
    words = command.words
    first = 1 if [each.written.text for each in words[:1]] == ["export"] else 0
    if len(words) < first + 2:
        return None
    head, tail = words[first], words[first + 1]
    is_cut = re.fullmatch(r"\w+=(\d+\s*,)*\d+,", head.written.text) is not None
    is_rest = re.fullmatch(r"\d[\d,]*", tail.written.text) is not None
    return (head, tail) if is_cut and is_rest else None


def _cut_list(document: Document, head: Word, tail: Word) -> Finding:
    text = head.written.text
    return Finding(
        f"`{text} {tail.written.text}` is cut at the space: the list ends after the comma",
        (at_offset(document, tail.written.at[0], len(tail.written.text), "taken for a command"),),
        (f"the shell looks for a program named {tail.written.text}, and starts nothing else",),
        f"write {text}{tail.written.text} without the space",
        consequence="parse",
    )


def _name(command: Command) -> Word | None:
    """The name in `NAME = value`, also after `export`."""
    words = [each.written.text for each in command.words[:3]]
    first = 1 if words[:1] == ["export"] else 0
    is_apart = len(words) > first + 1 and words[first + 1] == "="
    return command.words[first] if is_apart and _NAME.fullmatch(words[first]) else None


_PATTERN: Final = re.compile(r"(--?[\w=*?-]+\s*\|\s*)+--?[\w=*?-]+\s*\)")
"""A pattern of `case` with several flags: `--batch|-b)`, `--batch=*|-b=*)`."""


@rule("error", "silent", consumers=("bash",), reads=COMMANDS)
def command_cut_short(run: LintContext) -> Iterator[Finding]:
    """A command over several lines that the shell splits into several commands."""
    for document in scripts(run):
        if _RETURN in document.text:
            yield _of_windows(document)
            continue
        if conflict := _CONFLICT.search(document.text):
            yield _of_a_merge(document, conflict)
            continue
        yield from (_cut(document, command) for command in _first_rests(document))


def _first_rests(document: Document) -> Iterator[Command]:
    """What is left of each command that is cut short: the first piece, if there are several."""
    before: Command | None = None
    is_cut = False
    for command in _reached(filter(lambda each: each.words, commands_of(document))):
        is_after = before is not None and before.end == "\n"
        is_rest = is_after and _is_rest(document, command)
        if is_rest and not is_cut:
            yield command
        before, is_cut = command, is_rest


_BEGINS: Final = frozenset({"if", "for", "while", "until", "case", "select"})
_ENDS: Final = frozenset({"fi", "done", "esac", "}"})


def _reached(commands: Iterable[Command]) -> Iterator[Command]:
    """The commands before an `exit` that stands under no condition."""
    depth, before = 0, "\n"
    for command in commands:
        words = [each.written.text for each in command.words]
        depth += (words[0] in _BEGINS or words[-1] == "{") - (words[0] in _ENDS)
        if words[0] == "exit" and depth <= 0 and before in "\n;" and command.end in "\n;":
            return
        yield command
        before = command.end


_CONFLICT: Final = re.compile(r"(?m)^(?:<{7}|>{7}) .*$")
"""A mark that git leaves where a merge is to be settled by hand."""


def _of_a_merge(document: Document, mark: re.Match[str]) -> Finding:
    return Finding(
        "a merge is left unsettled: the shell ends at the mark of its conflict",
        (at_offset(document, mark.start(), len(mark[0]), "no command"),),
        ("it reports a syntax error, and starts nothing that stands below",),
        "settle the merge, and remove the lines that begin with <<<<<<<, ======= and >>>>>>>",
        consequence="parse",
    )


_RETURN: Final = "\\\r\n"
"""A line with Windows line ends: the backslash precedes the carriage return."""


def _of_windows(document: Document) -> Finding:
    return Finding(
        "the file has Windows line endings, so no line is continued",
        (at_offset(document, document.text.find(_RETURN), 1, "continues nothing"),),
        (
            "the backslash escapes the carriage return, and the command ends there",
            "the script gets a stray carriage return, and nothing from the lines below",
        ),
        "remove the carriage returns: sed -i 's/\\r$//' FILE",
        consequence="parse",
    )


_BLANK: Final = re.compile(r"(?:\\[ \t])+(?:--[A-Za-z].*)?")
"""A backslash before a blank: a word that is the blank, or begins with it."""


@rule("error", "parse", consumers=("bash",), reads=COMMANDS)
def blank_taken_for_a_word(run: LintContext) -> Iterator[Finding]:
    """A backslash in the middle of a line, left from a command that was joined into one line."""
    for document in scripts(run):
        for command in commands_of(document):
            inner = [each.written for each in command.words[:-1]]
            blanks = [each for each in inner if _BLANK.fullmatch(each.text)]
            if blanks and any(each.text.startswith("--") for each in inner):
                yield _blank(document, blanks[0].at[0], len(blanks))


def _blank(document: Document, start: int, number: int) -> Finding:
    words = "a word" if number == 1 else f"{number} words"
    return Finding(
        f"a backslash before a blank makes {words} of blanks",
        (at_offset(document, start, 1, "continues nothing"),),
        ("it continues a line only at its end; here the program gets the blank as an argument",),
        "remove the backslashes, or put each flag on a line of its own",
    )


_PARSED: Final = (
    *(*TRAINERS, "diffusers", "sd-scripts", "musubi-tuner", "ms-swift"),
    *("openrlhf", "openrlhf-rm", "openrlhf-ppo"),
)
"""Kinds of flags whose parsers take no word without a flag: all are Python's argparse."""
_GIVEN: Final = re.compile(r"--[\w.-]+=\S*[ \t]+\Z")
_OWN_WORD: Final = re.compile(r"add_argument\(\s*[\"'](?!-)|sys\.argv")


@rule("error", "parse", consumers=("bash",), reads=COMMANDS)
def word_of_no_flag(run: LintContext) -> Iterator[Finding]:
    """A word behind `--flag=value`, of which the value takes only what stands before the blank."""
    for document in run.of(*_PARSED):
        if document.is_view or run.own.shows_in(run.started.get(document.name, ()), _OWN_WORD):
            continue
        for word, span in document.loose:
            before = _GIVEN.search(lines_of(document.text)[span.line - 1][: span.column - 1])
            if before is not None and "$" not in word:
                yield _loose(word, span, before[0].split()[0])


def _loose(word: str, span: Span, before: str) -> Finding:
    flag = before.partition("=")[0]
    return Finding(
        f"`{word}` belongs to no flag: {flag} ends at the blank before it",
        (Label("unrecognized arguments", span, "", primary=True),),
        ("argparse takes one word behind the =, and refuses what it cannot place",),
        f"write {before}{word} without the blank, or put quotes around the value",
    )


def _is_rest(document: Document, command: Command) -> bool:
    """Whether a command begins with a flag; `--help)` is a pattern of `case`."""
    if not command.words or command.end == ")":
        return False
    word = command.words[0].written
    is_flag = word.text.startswith("--") and word.text[2:3].isalpha()
    return is_flag and _PATTERN.match(document.text, word.at[0]) is None


def _cut(document: Document, command: Command) -> Finding:
    word = command.words[0].written
    return Finding(
        f"{word.text} begins a command of its own: the one above ends before it",
        (at_offset(document, word.at[0], len(word.text), "not passed on"),),
        (
            _why(document.text[: word.at[0]].rstrip(" \t")),
            "the run starts without the flags from here on; then the shell says: command not found",
        ),
        "end each line of the command in a backslash with nothing behind it, and put no comment "
        "between the lines",
    )


def _why(before: str) -> str:
    above = before.removesuffix("\n").rpartition("\n")[2]
    if above.lstrip().startswith("#"):
        return "a comment between the lines ends the command, even after a backslash"
    if above.rstrip().endswith("\\"):
        return "a backslash continues a line only if it is the last character of it"
    return "the line above does not end in a backslash"


_STARTS: Final = re.compile(r"(.*/)?(python[\d.]*|torchrun|accelerate)")
_FLAGS: Final = ("-m", "--module")


@rule("error", "parse", consumers=("torch", "accelerate"), reads=COMMANDS)
def file_for_a_module(run: LintContext) -> Iterator[Finding]:
    """The path of a file after -m, which takes the name of a module."""
    for document in scripts(run):
        for command in commands_of(document):
            word = _file(command)
            if word is None:
                continue
            text = word.written.text
            name = text.removeprefix("./").removesuffix(".py").replace("/", ".")
            yield Finding(
                f"-m would start a module named {text}",
                (at_offset(document, word.written.at[0], len(text), "a file"),),
                (f"python looks for a module `py` within `{text.removesuffix('.py')}`",),
                f"write {text} without -m, or -m {name}",
            )


def _file(command: Command) -> Word | None:
    """The word after the first -m, if it ends in .py."""
    texts = [each.written.text for each in command.words]
    start = next((at for at, text in enumerate(texts) if _STARTS.fullmatch(text)), None)
    if start is None:
        return None
    for at in range(start + 1, len(texts) - 1):
        if texts[at] in _FLAGS:
            return command.words[at + 1] if texts[at + 1].endswith(".py") else None
        if texts[at].endswith(".py"):
            return None  # what follows is the script's own
    return None


_OTHERWISE: Final = ("flags.m", "flags.module", "flags.no_python", "flags.run_path")
"""Flags by which a launcher starts something other than a Python file."""
_LAUNCHERS: Final = ("torchrun", "accelerate", "deepspeed")


@rule("error", "parse", consumers=("accelerate", "torch", "deepspeed"), reads=("launch:script",))
def word_taken_for_script(run: LintContext) -> Iterator[Finding]:
    """A launcher takes a word before the script as the script."""
    for document in launches(run, *_LAUNCHERS):
        script = document.get("script")
        words = (script.node.items or ())[:2] if script is not None else ()
        if len(words) < 2 or any(document.get(key) for key in _OTHERWISE):
            continue
        first, second = (str(each.value) for each in words)
        if not second.endswith(".py") or second.startswith("-") or has_word_for_script(document):
            continue
        if first == second:
            yield _twice(words[1], second)
        elif not first.endswith((".py", ".sh")) and first not in _LAUNCHERS:
            yield _taken(document, words[0], second)


def _taken(document: Document, word: Node, script: str) -> Finding:
    launcher = document.value("launcher")
    return Finding(
        f"{launcher} would start {word.value}, with {script} as its argument",
        (Label("taken for the script", place(word), "script", True),),
        (
            "the first word that is neither a flag nor a flag's value is the script",
            f"python says: can't open file '{word.value}', or cannot read it",
        ),
        _help(document, str(word.value)),
    )


def _help(document: Document, word: str) -> str:
    if "host" in word and document.value("launcher") == "deepspeed":
        return f"write --hostfile {word}"
    if word.replace(",", "").isdigit():
        return "write the list without a space: 0,1"
    return f"write the flag that {word} belongs to, or remove it"


def _twice(word: Node, script: str) -> Finding:
    return Finding(
        f"{script} is written twice: the script is given its own name",
        (Label("an argument", place(word), "script", True),),
        ("transformers' parser: some specified arguments are not used",),
        "write it once",
    )
