"""Words of a command line as typed values."""

import shlex

from tunec.compiler.target import Json


def typed(word: str) -> Json:
    """A word as YAML would read it: a boolean, a number, or text."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def words_of(command: str) -> list[str]:
    """The words of a command; empty if a quote is not closed, which a row then reports."""
    try:
        return shlex.split(command)
    except ValueError:
        return []
