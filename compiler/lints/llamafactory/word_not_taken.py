"""A word that its reader does not know."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.llamafactory.choices import LATE, choices, is_taken
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_KINDS: Final = ("llamafactory", "simpletuner", "axolotl")
_LATE: Final = "a file's words are not compared with the choices: it fails where the word is used"

_USED: Final[Mapping[str, Consequence]] = {
    "finetuning_type": "parse",
    "stage": "parse",
    "mix_strategy": "init",
}
"""llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `__post_init__`: assert, Invalid
fine-tuning method; train/tuner.py `run_exp`: Unknown task, before anything is loaded;
data/data_utils.py `merge_dataset`. Others are looked at while the model is loaded, but for
pref_loss, which is the loss's (`preference-loss-not-computed`)."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.documents:
        if document.kind in _KINDS and document.target is not None and _is_written(document):
            yield from _of(run, document)


def _is_written(document: Document) -> bool:
    """Whether its words are as somebody wrote them: those of `config.env` become flags as well."""
    is_flags = document.kind == "simpletuner" and document.format == "shell"
    return is_flags or not document.is_view


def _of(run: Run, document: Document) -> Iterator[Finding]:
    words = choices(run, document)
    for name, at in document.found.items():
        known = words.get(name.removeprefix("--"))
        if known is None or not _is_word(document, at.value):
            continue
        said = str(at.value)
        if is_taken(said, known):
            continue
        near = nearest(said, known)[:1]
        is_late = document.kind == "llamafactory" and document.format != "shell"
        yield Finding(
            f"{name} cannot be {at.value}",
            (at.label("not taken"),),
            (f"taken: {quoted(sorted(known))}", *((_LATE,) if is_late else ())),
            f"did you mean {quoted(near)}?" if near else "write one of these",
            Fix((at.replaced(near[0]),), "unsafe") if near else None,
            consequence=_used(run, name) if is_late else _when(run, document, name),
        )


def _used(run: Run, name: str) -> Consequence:
    """Where LLaMA-Factory first uses a word of its file."""
    if name == "pref_loss":
        return "step" if run.runs("llamafactory<0.9.4") else "silent"
    return _USED.get(name, "load")


def _when(run: Run, document: Document, name: str) -> Consequence | None:
    """A word that the reader passes on is refused by TrainingArguments."""
    is_passed = document.kind == "axolotl" and name in LATE
    return "init" if is_passed and run.runs("axolotl<0.19") is not True else None


def _is_word(document: Document, value: object) -> bool:
    """A text; in LLaMA-Factory's own words also a switch, and a number that SimpleTuner lists."""
    if document.kind == "llamafactory" and value is True:
        return True
    if document.kind == "simpletuner" and type(value) is int:
        return True
    return isinstance(value, str) and value not in ("", "None")


RULE = Rule(
    name="word-not-taken",
    severity="error",
    consequence="parse",
    consumers=("llamafactory", "simpletuner", "axolotl"),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 hparams: Literal fields; hparams/parser.py `_parse_args`: "
            "parse_dict takes a file's words as they are, argparse compares flags; "
            "model/model_utils/attention.py: unknown attention type"
        ),
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py: choices of each "
            "flag; run: Optimizer adam_bfloat16 not found"
        ),
        "axolotl 0.8.1 to 0.19.0 utils/schemas/enums.py ChatTemplate, RLType: Input should be",
    ),
    check=_check,
)
