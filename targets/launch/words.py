"""The words of a shell line: their places, and their text without quotes."""

from collections.abc import Iterator

from msgspec import Struct

from tunec.compiler.frontend import shell_words
from tunec.compiler.frontend.text import Origin, Places
from tunec.schemas.source import Span


class Word(Struct, frozen=True):
    """A word without quotes; parameters (`$HOME`) are not expanded."""

    text: str
    span: Span


def commands(text: str, file: str) -> Iterator[tuple[Word, ...]]:
    """The commands of a script in order, each as its words; comments and redirections are dropped.

    Loops and functions are treated as words: this reads scripts that export variables and start one
    program.
    """
    places = Places(text, Origin(file))
    for command in shell_words.commands(shell_words.whole(text)):
        if command.words:
            yield tuple(_word(each, places) for each in command.words)


def _word(word: shell_words.Word, places: Places) -> Word:
    start, end = word.written.at[0], word.written.at[-1] + 1
    return Word("".join(part.chars.text for part in word.parts), places.span(start, end))
