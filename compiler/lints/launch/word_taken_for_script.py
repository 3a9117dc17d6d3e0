"""A launcher takes a word that stands before the script for the script."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.nodes import Node, place
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.launch.switch_with_a_value import has_word_for_script
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OTHERWISE: Final = ("flags.m", "flags.module", "flags.no_python", "flags.run_path")
"""Flags by which a launcher starts something else than a file of Python."""
_LAUNCHERS: Final = ("torchrun", "accelerate", "deepspeed")


def _check(run: Run) -> Iterator[Finding]:
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
        f"{launcher} is to start {word.value}, and {script} is its argument",
        (Label("taken for the script", place(word), "script", True),),
        (
            "the first word that is no flag, nor a flag's value, is the script",
            f"python says: can't open file '{word.value}', or cannot read it",
        ),
        _help(document, str(word.value)),
    )


def _help(document: Document, word: str) -> str:
    if "host" in word and document.value("launcher") == "deepspeed":
        return f"write --hostfile {word}"
    if word.replace(",", "").isdigit():
        return "write the list without a blank: 0,1"
    return f"write the flag that {word} belongs to, or remove it"


def _twice(word: Node, script: str) -> Finding:
    return Finding(
        f"{script} is written twice: the script is given its own name",
        (Label("an argument", place(word), "script", True),),
        ("transformers' parser: some specified arguments are not used",),
        "write it once",
    )


RULE = Rule(
    name="word-taken-for-script",
    severity="error",
    consequence="parse",
    consumers=("accelerate", "torch", "deepspeed"),
    sources=(
        (
            "torch 2.13.0 distributed/run.py, deepspeed 0.19.8 launcher/runner.py `parse_args`, "
            "accelerate 1.15.0 commands/launch.py: the first positional word is the script"
        ),
        "deepspeedai/DeepSpeedExamples#575, hiyouga/LlamaFactory#2294",
    ),
    check=_check,
)
