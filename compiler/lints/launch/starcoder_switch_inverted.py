"""A switch of StarCoder's script that does the opposite of its name, or nothing."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.nodes import place
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.own_parsers import OF_STARCODER
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_MARKS: Final = ("--model_path", "--dataset_name", "--seq_length", "--input_column_name")
_SWITCHES: Final[Mapping[str, tuple[str, str, Consequence]]] = {
    "--no_fp16": (
        "turns fp16 on, beside bf16, which is always on",
        "fp16 is `not args.no_fp16`, and the switch stores false: at most one of the two can be",
        "init",
    ),
    "--no_gradient_checkpointing": (
        "does nothing: gradients are checkpointed with it and without",
        "it stores false, and false is its default",
        "silent",
    ),
}


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run):
        script = document.get("script")
        words = (script.node.items or ()) if script is not None else ()
        names = {str(each.value).partition("=")[0]: each for each in words}
        if (
            not words
            or not OF_STARCODER.search(str(words[0].value))
            or not names.keys() & {*_MARKS}
        ):
            continue
        for name, told in _SWITCHES.items():
            if name in names:
                path = name.removeprefix("--")
                yield _finding(Label("here", place(names[name]), path, True), name, *told)
        if _hands_rank_on(document):
            yield _by_rank(document)


def _hands_rank_on(document: Document) -> bool:
    """Whether the launcher writes `--local-rank` behind the script, which knows `--local_rank`."""
    word = document.get("launcher")
    is_launch = word is not None and "torch.distributed.launch" in document.text
    is_told = document.get("flags.use_env") is not None
    return is_launch and document.value("launcher") == "torchrun" and not is_told


def _by_rank(document: Document) -> Finding:
    at = document.get("launcher")
    return Finding(
        "python -m torch.distributed.launch gives the script --local-rank, which it does not know",
        (at.label("gives --local-rank"),) if at is not None else (),
        ("torch 2 writes the flag with a dash: unrecognized arguments: --local-rank=0",),
        "use torchrun, or --use_env",
        consequence="parse",
    )


def _finding(label: Label, name: str, what: str, why: str, consequence: Consequence) -> Finding:
    return Finding(f"{name} {what}", (label,), (why,), "remove it", consequence=consequence)


RULE = Rule(
    name="starcoder-switch-inverted",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "bigcode-project/starcoder d72c7fe finetune/finetune.py `get_args`, `run_training`: "
            "store_false; #145: --local-rank"
        ),
        "torch 2.0 to 2.13 distributed/launcher/run.py, launch.py: --local-rank",
        "transformers 4.40.2 to 5.23.0 training_args.py: At most one of fp16 and bf16 can be True",
    ),
    check=_check,
)
