"""A value that an example script of transformers refuses, or cannot compute with."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.examples import example_of, program
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TASKS: Final = ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli")
_LENGTH: Final = 384
_UNASKED: Final = "transformers<4.47"
"""Releases whose collator asks for no bounds: torch.bernoulli refuses the first batch."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", "sft"):
        script = example_of(run, document) if document.format == "shell" else None
        if script is None or document.is_view:
            continue
        name = program(script).rpartition("/")[2]
        if name == "run_mlm.py":
            yield from _of_mask(run, document)
        elif name == "run_glue.py":
            yield from _of_task(document)
        elif name in ("run_qa.py", "run_qa_beam_search.py"):
            yield from _of_stride(document)


def _of_mask(run: Run, document: Document) -> Iterator[Finding]:
    at = document.get("mlm_probability")
    if at is not None and is_number(at.value) and not 0 <= at.value <= 1:
        yield Finding(
            f"mlm_probability {at.value} is no share of one",
            (at.label("between 0 and 1"),),
            ("it is how many tokens are hidden, as a share",),
            "write 0.15",
            consequence="step" if run.runs(_UNASKED) is True else None,
        )


def _of_task(document: Document) -> Iterator[Finding]:
    at = document.get("task_name")
    if at is not None and isinstance(at.value, str) and at.value.lower() not in _TASKS:
        yield Finding(
            f"task_name {at.value} is no task of GLUE",
            (at.label("Unknown task"),),
            (f"the tasks are {', '.join(_TASKS)}",),
            "write one of them, or --train_file",
            consequence="parse",
        )


def _of_stride(document: Document) -> Iterator[Finding]:
    at, length = document.get("doc_stride"), document.get("max_seq_length")
    most = length.value if length is not None else _LENGTH
    if "max_seq_length" in document.unknown or at is None or not is_number(most):
        return
    if is_number(at.value) and at.value >= most:
        yield Finding(
            f"doc_stride {at.value} is not below max_seq_length {most}",
            (
                at.label("as long as a window"),
                *([length.label("", primary=False)] if length else []),
            ),
            ("windows overlap by the stride: the tokenizer cannot go on, and panics",),
            "write 128",
        )


RULE = Rule(
    name="example-value-refused",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 examples/pytorch: text-classification/run_glue.py "
            "`DataTrainingArguments.__post_init__`: Unknown task; question-answering/run_qa.py "
            "`prepare_train_features`: stride=data_args.doc_stride"
        ),
        (
            "transformers 4.51.3 to 5.23.0 data/data_collator.py "
            "`DataCollatorForLanguageModeling`: mlm_probability should be between 0 and 1; 4.40.2 "
            "to 4.46.3: torch.bernoulli"
        ),
        "tokenizers 0.19 to 0.22 src/utils/truncation.rs, tokenizer/encoding.rs `truncate`",
    ),
    check=_check,
)
