"""Tables of cases, which stand in YAML beside the tests that go through them."""

from pathlib import Path
from typing import Any

import yaml

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it is


def loaded(text: str) -> Any:
    """What a text in YAML says."""
    return yaml.load(text, _LOADER)  # noqa: S506  safe, in C


def table(test: str, name: str | None = None, **words: str) -> Any:
    """The tables of a test module by name: `test_x.yaml` beside `test_x.py`, or another file.

    `words` stand for what only the machine knows, such as `$FIVE` for the path of an example.
    """
    file = Path(test).with_name(name) if name else Path(test).with_suffix(".yaml")
    text = file.read_text("utf-8")
    for word, meant in words.items():
        text = text.replace(f"${word}", meant)
    return loaded(text)


def rows(test: str, name: str, **words: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """A table whose rows name the same fields, as `pytest.mark.parametrize` takes it."""
    cases = table(test, **words)[name]
    return tuple(cases[0]), [tuple(case.values()) for case in cases]


def tuples(value: Any) -> Any:
    """A value with its lists as tuples, which YAML does not have."""
    if isinstance(value, dict):
        return {key: tuples(each) for key, each in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value
