"""Arguments of published training scripts."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.nodes import Node, place
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.launch import OF_OPEN_INSTRUCT, OF_STARCODER, example_of, launches
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule

_TEXTS: Final = ("csv", "json", "txt")
_TABLES: Final = ("csv", "json")
_ENDINGS: Final = (
    (re.compile(r"run_(?:clm|mlm|plm|fim)\.py\Z"), _TEXTS),
    (re.compile(r"run_(?:qa|qa_beam_search|seq2seq_qa|swag|ner)\.py\Z"), _TABLES),
)
_FILES: Final = ("train_file", "validation_file")


@rule(
    "error", "parse", consumers=("transformers",), reads=keys("hf|sft", "config_overrides", *_FILES)
)
def example_data_refused(run: LintContext) -> Iterator[Finding]:
    """Data or settings that an example script of transformers refuses when it reads its flags."""
    for document in run.of("hf", "sft"):
        script = example_of(run, document) if document.format == "shell" else None
        if script is None or document.is_view or document.unknown & {"flags"}:
            continue
        name = script.first_word
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
        mend = "name it .json: JSON lines are read too"
        yield _data_finding(at.label("refused"), what, f"`{key}` should be one of {known}", mend)


def _of_overrides(document: Document) -> Iterator[Finding]:
    at = document.get("config_overrides")
    other: Place | None = document.get("model_name_or_path") or document.get("config_name")
    if at is not None and other is not None:
        yield _data_finding(
            at.label("refused"),
            f"config_overrides cannot stand beside {other.path}",
            "it is for a model that is trained from scratch: --model_type and --tokenizer_name",
            "remove one of the two",
        )


def _data_finding(label: Label, what: str, why: str, mend: str) -> Finding:
    return Finding(what, (label,), (why,), mend)


_TASKS: Final = ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli")
_LENGTH: Final = 384
_UNASKED: Final = "transformers<4.47"
"""Releases whose collator does not check the range, so that torch.bernoulli refuses the first
batch."""


@rule(
    "error",
    "init",
    consumers=("transformers",),
    reads=keys("hf|sft", "mlm_probability", "task_name", "doc_stride"),
)
def example_value_refused(run: LintContext) -> Iterator[Finding]:
    """A value that an example script of transformers refuses, or cannot compute with."""
    for document in run.of("hf", "sft"):
        script = example_of(run, document) if document.format == "shell" else None
        if script is None or document.is_view:
            continue
        name = script.first_word.rpartition("/")[2]
        if name == "run_mlm.py":
            yield from _of_mask(run, document)
        elif name == "run_glue.py":
            yield from _of_task(document)
        elif name in ("run_qa.py", "run_qa_beam_search.py"):
            yield from _of_stride(document)


def _of_mask(run: LintContext, document: Document) -> Iterator[Finding]:
    at = document.get("mlm_probability")
    if at is not None and is_number(at.value) and not 0 <= at.value <= 1:
        yield Finding(
            f"mlm_probability {at.value} is not between 0 and 1",
            (at.label("between 0 and 1"),),
            ("it is the share of tokens that are masked",),
            "write 0.15",
            consequence="step" if run.runs(_UNASKED) is True else None,
        )


def _of_task(document: Document) -> Iterator[Finding]:
    at = document.get("task_name")
    if at is not None and isinstance(at.value, str) and at.value.lower() not in _TASKS:
        yield Finding(
            f"task_name {at.value} is not a GLUE task",
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
            (at.label("as long as a window"), *also(length)),
            ("windows overlap by the stride: the tokenizer cannot advance, and panics",),
            "write 128",
        )


_RECIPES: Final = re.compile(r"(?:\A|/)run_(?:sft|dpo|orpo|cpt)\.py\Z")
"""huggingface/alignment-handbook up to ae3f44f scripts: `H4ArgumentParser`."""


_READS_FILES: Final = re.compile(r"""argv\[1\]\.endswith\(["']\.ya?ml""")
"""A parser that still takes a file as its first word."""


@rule("error", "parse", consumers=("transformers",), reads=("launch:script",))
def recipe_flag_without_sign(run: LintContext) -> Iterator[Finding]:
    """A recipe is a plain argument, beside flags that its parser then refuses."""
    for document in launches(run):
        script = document.get("script")
        words = (script.node.items or ()) if script is not None else ()
        if len(words) < 2 or not str(words[1].value).endswith((".yaml", ".yml")):
            continue
        program = str(words[0].value)
        if _RECIPES.search(program):
            yield from _apart(words)
        elif OF_OPEN_INSTRUCT.search(program) and not run.own.shows(_READS_FILES):
            yield _unread(document, words[1])


def _apart(words: tuple[Node, ...]) -> Iterator[Finding]:
    for word in words[2:]:
        text = str(word.value)
        if text.startswith("--") and "=" not in text:
            name = text.removeprefix("--")
            yield Finding(
                f"{text} is separated from its value",
                (Label("no `=`", place(word), name.replace("-", "_"), True),),
                ("beside a recipe each flag is cut at its `=`: IndexError",),
                f"write {text}=VALUE",
            )


def _unread(document: Document, word: Node) -> Finding:
    return Finding(
        f"{word.value} is given on its own, and the script reads only flags",
        (Label("not read", place(word), "script", True),),
        (
            "since March 2025 the parser takes no file: some specified arguments are not used",
            f"{document.value('launcher')} passes it on unchanged",
        ),
        "write its keys as flags, or take a revision before 4edd293",
        severity="warning",
    )


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


@rule("error", "init", consumers=("transformers",), reads=("launch:script",))
def starcoder_switch_inverted(run: LintContext) -> Iterator[Finding]:
    """A switch of StarCoder's script does the opposite of its name, or nothing."""
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
                yield _starcoder_finding(Label("here", place(names[name]), path, True), name, *told)
        if _hands_rank_on(document):
            yield _by_rank(document)


def _hands_rank_on(document: Document) -> bool:
    """Whether the launcher appends `--local-rank` to the script, which has `--local_rank`."""
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


def _starcoder_finding(
    label: Label, name: str, what: str, why: str, consequence: Consequence
) -> Finding:
    return Finding(f"{name} {what}", (label,), (why,), "remove it", consequence=consequence)
