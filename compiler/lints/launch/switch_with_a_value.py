"""A switch of a launcher that is given true or false, which the launcher takes for the script."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.nodes import place
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_WORDS: Final = ("true", "false", "yes", "no", "1", "0")


def has_word_for_script(document: Document) -> bool:
    """Whether what the launcher takes for the script is a truth value."""
    script = document.value("script")
    return isinstance(script, list) and bool(script) and str(script[0]).lower() in _WORDS


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "accelerate", "torchrun", "deepspeed"):
        script = document.get("script")
        if script is not None and script.node.items and has_word_for_script(document):
            yield _finding(document, script)


def _finding(document: Document, script: Place) -> Finding:
    word = (script.node.items or ())[0]
    launcher = document.value("launcher")
    return Finding(
        f"{launcher} is to start a script named {word.value}",
        (Label("taken for the script", place(word), "script", True),),
        (
            f"the flag before it is a switch: {launcher} takes no value for it",
            f"python says: can't open file '{word.value}'",
        ),
        f"leave out {word.value}; leave out the switch, too, where it is to be off",
    )


RULE = Rule(
    name="switch-with-a-value",
    severity="error",
    consequence="parse",
    consumers=("accelerate", "torch", "deepspeed"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `launch_command_parser`: --multi_gpu, "
            "--use_deepspeed, --use_fsdp: store_true; torch 2.13.0 distributed/run.py: "
            "--standalone; deepspeed 0.19.8 launcher/runner.py: --no_ssh"
        ),
    ),
    check=_check,
)
