"""Words of a command line as data."""

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
