"""Words of a command line as data."""

import shlex

from tunec.compiler.target import Json


def typed(word: str) -> Json:
    """A word as YAML would have it: a truth value, a number, or text."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def words_of(command: str) -> list[str]:
    """The words of a command; none where a quote is left open: a row then reports it."""
    try:
        return shlex.split(command)
    except ValueError:
        return []
