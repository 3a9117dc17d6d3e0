"""Flags of ChatGLM's P-tuning script."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import Need, lacking
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.training_loop import number_of
from tunec.compiler.lints.rule import Finding, rule

_COLUMNS: Final = ("prompt_column", "response_column")
"""What every command of the script names, and no other script of that parser has."""
_DATA: Final = (
    Need("do_train", ("train_file",), "--do_train requires a train dataset"),
    Need("do_eval", ("validation_file",), "--do_eval requires a validation dataset"),
    Need("do_predict", ("test_file",), "--do_predict requires a test dataset"),
)
_PREFIX: Final = Need("prefix_projection", ("pre_seq_len",))
_LOADED: Final = Need("ptuning_checkpoint", ("pre_seq_len",))
_MOST: Final = 1e-3
"""zai-org/ChatGLM2-6B cb8e8b4 ptuning: train.sh has 2e-2 for prefixes, ds_train_finetune.sh 1e-4
for the whole model."""


@rule(
    "chatglm-flags-clash",
    "error",
    "init",
    consumers=("transformers",),
    sources=(
        (
            "zai-org/ChatGLM2-6B cb8e8b4 ptuning/main.py `main`: ValueError, requires a train, "
            "validation, test dataset; model.transformer.prefix_encoder, there where config has "
            "pre_seq_len"
        ),
        "zai-org/ChatGLM-6B#389, zai-org/ChatGLM2-6B#53",
    ),
    reads=("hf:prompt_column",),
)
def chatglm_flags_clash(run: LintContext) -> Iterator[Finding]:
    """Flags of ChatGLM's ptuning/main.py that it refuses, or does not read without others."""
    for document in run.of("hf"):
        if not document.is_view and all(document.get(key) for key in _COLUMNS):
            yield from _without_data(run, document)
            yield from _without_prefix(run, document)


def _without_data(run: LintContext, document: Document) -> Iterator[Finding]:
    for need in _DATA:
        found = lacking(run, document, need)
        if found is not None:
            yield Finding(
                f"{found[0].path} without {need.others[0]}",
                (found[0].label("refused"),),
                (need.why,),
                f"write --{need.others[0]}, or remove it",
            )


def _without_prefix(run: LintContext, document: Document) -> Iterator[Finding]:
    projected, loaded = lacking(run, document, _PREFIX), lacking(run, document, _LOADED)
    if projected is not None:
        yield Finding(
            "prefix_projection does nothing without pre_seq_len",
            (projected[0].label("not read"),),
            ("without a prefix the whole model is trained",),
            "write --pre_seq_len 128, or remove it",
            severity="warning",
            consequence="silent",
        )
    if loaded is not None:
        yield Finding(
            "ptuning_checkpoint without pre_seq_len",
            (loaded[0].label("a prefix for a model without one"),),
            ("AttributeError: 'ChatGLMModel' object has no attribute 'prefix_encoder'",),
            "write the --pre_seq_len that it was trained with",
            consequence="load",
        )
    at, length = document.get("learning_rate"), document.get("pre_seq_len")
    rate = number_of(at.value) if at is not None else None
    is_whole = length is None and "pre_seq_len" not in document.unknown
    if at is not None and is_whole and rate is not None and rate > _MOST:
        yield Finding(
            f"learning rate {at.value} for the whole model",
            (at.label("usual for prefixes"),),
            ("without pre_seq_len every weight is trained; the makers use 1e-4 for that",),
            "write --learning_rate 1e-4, or --pre_seq_len 128",
            severity="warning",
            consequence="silent",
        )
