"""A flag that a command is given twice, of which the last counts."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.nodes import Node, place
from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.kinds import fields_of
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_REPEATED: Final = ("--set", "--add", "--override", "-o", "--dataset", "--dataset_name", "--env")
"""Flags that programs are known to take several times."""


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run):
        script = document.get("script")
        items = script.node.items if script is not None and script.node.items else ()
        if document.value("launcher") in STARTERS:
            continue
        first: dict[str, tuple[Node, str]] = {}
        for at, item in enumerate(items):
            name, value = _flag(item), _value(items, at)
            if name and name in first and first[name][1] != value and name not in _REPEATED:
                found = _finding(document, name, first[name], (item, value))
                yield replace(found, certain=_is_of_the_trainer(name[2:]))
            elif name:
                first[name] = item, value


def _is_of_the_trainer(name: str) -> bool:
    """Whether it is a field of a class that takes one value: other programs may collect several."""
    return any(name in fields_of(kind) for kind in ("hf", *TRL))


def _flag(item: Node) -> str:
    text = item.value if isinstance(item.value, str) else ""
    named = text.startswith("--") and text[2:3].isalpha()
    return text.partition("=")[0].replace("-", "_").replace("__", "--", 1) if named else ""


def _value(items: tuple[Node, ...], at: int) -> str:
    text = str(items[at].value)
    if "=" in text:
        return text.partition("=")[2]
    following = items[at + 1].value if at + 1 < len(items) else "--"
    return "" if not isinstance(following, str) or following.startswith("--") else following


def _finding(
    document: Document, name: str, first: tuple[Node, str], second: tuple[Node, str]
) -> Finding:
    del document
    return Finding(
        f"{name} is given twice: {second[1] or 'on'} counts, and {first[1] or 'on'} does not",
        (
            Label("does not count", place(first[0]), "script", True),
            Label("counts", place(second[0]), "script", False),
        ),
        ("argparse keeps the last value of a flag, and says nothing",),
        "leave one out",
    )


RULE = Rule(
    name="flag-given-twice",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=("Python 3.11 argparse.py `_StoreAction`: setattr, for each occurrence anew",),
    check=_check,
)
