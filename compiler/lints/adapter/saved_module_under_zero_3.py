"""Embeddings or heads are to be trained whole beside LoRA, at stage 3."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.adapter.lora import last, loras
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import also, stage_of

if TYPE_CHECKING:
    from tunec.schemas.models.architecture import Module

_LARGE: Final = frozenset(
    {
        *("embed_tokens", "tok_embeddings", "word_embeddings", "embed_in", "wte", "shared"),
        *("lm_head", "output_layer", "embed_out", "ff_out"),
    }
)
"""Names of token embeddings and of the heads that are as large, by family."""
_GIB: Final = 1 << 30
_BYTES: Final = 16
"""Of a trained parameter in 16 bits: copy 2, gradient 2, fp32 master 4, AdamW's moments 8."""


def _check(run: Run) -> Iterator[Finding]:
    stage = stage_of(run)
    if stage.value != 3 or stage.place is None:
        return
    for lora in loras(run):
        at = lora.place("modules_to_save")
        large = [each for each in lora.saved if last(each) in _LARGE]
        if at is None or not large:
            continue
        terms = _terms(run, large)
        yield Finding(
            f"{quoted(large, 'and')} of modules_to_save is copied whole before stage 3 shards it",
            (at.label("a second copy, trained in full"), *also(stage.place)),
            (
                "reported to stay whole on each device, or to keep a shape of [0, hidden]",
                *_size(terms),
            ),
            "train single rows with trainable_token_indices (peft 0.15), or use stage 2",
            sum=terms,
        )


def _terms(run: Run, names: list[str]) -> tuple[Term, ...]:
    count = sum(each.parameters for each in _modules(run) if last(each.path) in set(names))
    if not count:
        return ()
    return (
        Term("parameters", count, "parameters"),
        Term("bytes of a trained parameter", _BYTES, "bytes"),
    )


def _modules(run: Run) -> "tuple[Module, ...]":
    return () if run.model is None else tuple(run.model.architecture.modules)


def _size(terms: tuple[Term, ...]) -> tuple[str, ...]:
    if not terms:
        return ()
    size = terms[0].value * _BYTES / _GIB
    return (f"whole they take {size:.1f} GiB of each device with gradient and AdamW's states",)


RULE = Rule(
    name="saved-module-under-zero-3",
    severity="warning",
    consequence="out-of-memory",
    consumers=("peft", "deepspeed"),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 utils/other.py `ModulesToSaveWrapper.update`: deepcopy of the "
            "original module, gathered first where zero.Init has sharded it"
        ),
        (
            "deepspeedai/DeepSpeed#7669 (open): modules_to_save with zero3_init_flag false; shapes "
            "of [0, hidden_size], or memory until the batch has to be 1"
        ),
        "that the copy stays whole is what #7669 reports, and was not traced on devices",
    ),
    check=_check,
)
