"""Which rules cannot speak of a run, found without importing them.

`silence.json` holds, for each rule, a tree of questions: what the rule asks first, by its answer
what it asks next, and so on to where it has found nothing. A run whose answers lead there is one of
which the rule says nothing, for it would be told the same (`tunec.compiler.lints.questions`). An
answer that the tree does not know proves nothing, and the rule itself is asked. The trees are grown
by `python -m tunec.targets.generate_silence` from plans of all kinds and from the pages' examples;
they only save time, and a test holds that they are those of the rules as they stand.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tunec.compiler.lints.questions import Question, answer
from tunec.compiler.lints.run import Run

SILENT: Final = -1
UNKNOWN: Final = -2
FILE: Final = "silence.json"
_READ: Final = json.JSONDecoder().raw_decode
"""The value at the start of a text, and where it ends."""

Ask = Callable[[Question], str]
"""Answers a question of one run."""


class _Table:
    """The file: a list with an element a line, of which only the lines that are asked are parsed.

    The first says the questions and each rule's first node; the others are nodes, each a question
    with the next node by its answer.
    """

    def __init__(self, text: str) -> None:
        _, head, *self._lines = text.split("\n")
        told = json.loads(head.rstrip(","))
        self.questions: list[Question] = [tuple(each) for each in told["questions"]]
        self.subjects: dict[str, str] = {}
        self.roots: dict[str, int] = {}
        for path, root in told["rules"].items():
            subject, _, name = path.partition("/")
            self.subjects[name], self.roots[name] = subject, root
        self.nodes: dict[int, tuple[int, dict[str, int]]] = {}

    def node(self, at: int) -> tuple[int, dict[str, int]]:
        """The number of a question, and the node by each answer."""
        (number, branches), _ = _READ(self._lines[at])
        self.nodes[at] = number, branches
        return self.nodes[at]


@cache
def _table() -> _Table:
    return _Table(Path(__file__).with_name(FILE).read_text("utf-8"))


def known_rules() -> Mapping[str, str]:
    """The rules that have a tree, sorted, each with its subject."""
    return _table().subjects


def outspoken(run: Run, names: Iterable[str]) -> Iterator[str]:
    """The rules among `names` that may find something in a run, in their order."""
    told: dict[Question, str] = {}

    def ask(question: Question) -> str:
        told[question] = answer(run, question)
        return told[question]

    return (name for name in names if proof(name, told, ask) is None)


def proof(name: str, told: Mapping[Question, str], ask: Ask) -> list[Question] | None:
    """The questions whose answers show that a rule finds nothing in a run; None: none do.

    `told` holds what the run has answered; `ask` answers the rest.
    """
    table = _table()
    nodes, questions = table.nodes, table.questions
    at, asked = table.roots.get(name, UNKNOWN), list[Question]()
    while at >= 0:
        number, branches = nodes.get(at) or table.node(at)
        question = questions[number]
        asked.append(question)
        known = told.get(question)
        at = branches.get(ask(question) if known is None else known, UNKNOWN)
    return asked if at == SILENT else None
