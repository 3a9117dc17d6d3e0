"""A recipe that is given by itself, with flags that its parser does not read beside one."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.nodes import Node, place
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.own_parsers import OF_OPEN_INSTRUCT
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_RECIPES: Final = re.compile(r"(?:\A|/)run_(?:sft|dpo|orpo|cpt)\.py\Z")
"""huggingface/alignment-handbook up to ae3f44f scripts: `H4ArgumentParser`."""


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run):
        script = document.get("script")
        words = (script.node.items or ()) if script is not None else ()
        if len(words) < 2 or not str(words[1].value).endswith((".yaml", ".yml")):
            continue
        program = str(words[0].value)
        if _RECIPES.search(program):
            yield from _apart(words)
        elif OF_OPEN_INSTRUCT.search(program):
            yield _unread(document, words[1])


def _apart(words: tuple[Node, ...]) -> Iterator[Finding]:
    for word in words[2:]:
        text = str(word.value)
        if text.startswith("--") and "=" not in text:
            name = text.removeprefix("--")
            yield Finding(
                f"{text} stands apart from its value",
                (Label("no `=`", place(word), name.replace("-", "_"), True),),
                ("beside a recipe each flag is cut at its `=`: IndexError",),
                f"write {text}=VALUE",
            )


def _unread(document: Document, word: Node) -> Finding:
    return Finding(
        f"{word.value} stands for itself, and the script reads flags alone",
        (Label("not read", place(word), "script", True),),
        (
            "since March 2025 the parser takes no file: some specified arguments are not used",
            f"{document.value('launcher')} hands it on as it is",
        ),
        "write its keys as flags, or take a revision before 4edd293",
        severity="warning",
    )


RULE = Rule(
    name="recipe-flag-without-sign",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "huggingface/alignment-handbook ae3f44f src/alignment/configs.py `H4ArgumentParser."
            'parse_yaml_and_args`: arg.split("=")[1]'
        ),
        "allenai/open-instruct 4edd293 finetune.py: parse_args_into_dataclasses; #625",
    ),
    check=_check,
)
