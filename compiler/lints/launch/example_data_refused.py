"""Data or settings that an example script of transformers refuses when it reads its flags."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.examples import example_of, program
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TEXTS: Final = ("csv", "json", "txt")
_TABLES: Final = ("csv", "json")
_ENDINGS: Final = (
    (re.compile(r"run_(?:clm|mlm|plm|fim)\.py\Z"), _TEXTS),
    (re.compile(r"run_(?:qa|qa_beam_search|seq2seq_qa|swag|ner)\.py\Z"), _TABLES),
)
_FILES: Final = ("train_file", "validation_file")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", "sft"):
        script = example_of(run, document) if document.format == "shell" else None
        if script is None or document.is_view or document.unknown & {"flags"}:
            continue
        name = program(script)
        taken = next((each for pattern, each in _ENDINGS if pattern.search(name)), None)
        if taken is not None:
            yield from _of_files(document, taken)
        if taken is _TEXTS:
            yield from _of_overrides(document)


def _of_files(document: Document, taken: tuple[str, ...]) -> Iterator[Finding]:
    for key in _FILES:
        at = document.get(key)
        ending = str(at.value).rpartition(".")[2] if at is not None else ""
        if at is None or not isinstance(at.value, str) or ending in taken:
            continue
        known = ", ".join(taken)
        what = f"{key} ends in .{ending}, and the script takes {known}"
        mend = "name it .json: lines of JSON are read so, too"
        yield _finding(at.label("refused"), what, f"`{key}` should be one of {known}", mend)


def _of_overrides(document: Document) -> Iterator[Finding]:
    at = document.get("config_overrides")
    other: Place | None = document.get("model_name_or_path") or document.get("config_name")
    if at is not None and other is not None:
        yield _finding(
            at.label("refused"),
            f"config_overrides cannot stand beside {other.path}",
            "it is for a model that is trained from scratch: --model_type and --tokenizer_name",
            "remove one of the two",
        )


def _finding(label: Label, what: str, why: str, mend: str) -> Finding:
    return Finding(what, (label,), (why,), mend)


RULE = Rule(
    name="example-data-refused",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 examples/pytorch/language-modeling/run_clm.py "
            "`ModelArguments.__post_init__`, `DataTrainingArguments.__post_init__`; the others in "
            "question-answering, multiple-choice, token-classification alike"
        ),
    ),
    check=_check,
)
