"""Gradient checkpointing beside an engine or frozen weights."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place, also
from tunec.compiler.lints.facts.lora import has_adapter
from tunec.compiler.lints.facts.training_loop import (
    RECOMPUTED,
    checkpointing_place,
    engine_of,
    recomputes,
    reentrant,
    reentrant_place,
)
from tunec.compiler.lints.rule import Finding, rule


@rule(
    "adalora-recomputed-by-reentrance",
    "error",
    "step",
    consumers=("peft",),
    reads=("peft:peft_type",),
)
def adalora_recomputed_by_reentrance(run: LintContext) -> Iterator[Finding]:
    """AdaLoRA's own loss under reentrant checkpointing in several processes."""
    kind = run.said("peft", "peft_type")
    if kind is None or kind.value != "ADALORA" or engine_of(run):
        return
    place, world = reentrant_place(run) or checkpointing_place(run), run.value("parallel.world")
    if place is None or reentrant(run) is not True or world == 1:
        return
    yield Finding(
        "AdaLoRA with reentrant checkpointing in several processes",
        (place.label("reentrant"), kind.label("", primary=False)),
        (
            (
                "AdaLoRA adds a term of its adapters' orthogonality to the loss, outside of the "
                "layers that are recomputed: DDP sees each adapter ready twice"
            ),
            "RuntimeError in the backward pass: expected to mark a variable ready only once",
        ),
        "set use_reentrant to false",
        certain=world is not None,
    )


_SWITCHES: Final = ("gradient_checkpointing", "activation_checkpointing")
_GATHERED_OWN: Final = (
    "fsdp_config.activation_checkpointing",
    "fsdp_config.fsdp_activation_checkpointing",
)
_WHOLE: Final = ("full_shard", "hybrid_shard")


@rule(
    "gathered-again-for-recomputation",
    "warning",
    "slow",
    consumers=("transformers<4.53",),
    reads=("trainer:fsdp",),
)
def gathered_again_for_recomputation(run: LintContext) -> Iterator[Finding]:
    """The trainer recomputes activations of a model that FSDP shards."""
    for document in run.of("trainer"):
        fsdp, switch = document.get("fsdp"), _switch(document)
        if fsdp is None or switch is None or document.is_view or not _shards(fsdp.value):
            continue
        if document.kind == "llamafactory" or any(document.value(key) for key in _GATHERED_OWN):
            continue
        if document.hides("fsdp_config", *_GATHERED_OWN):
            continue
        if has_adapter(run):
            continue  # its frozen layers have to let gradients through, which the trainer sees to
        yield _finding(switch, fsdp)


def _switch(document: Document) -> Place | None:
    found = (document.get(key) for key in _SWITCHES)
    return next((at for at in found if at is not None and at.value is True), None)


def _shards(said: Any) -> bool:
    """Whether parameters are given back after each layer."""
    words = said.replace(",", " ").split() if isinstance(said, str) else said
    return isinstance(words, list) and any(each in _WHOLE for each in words)


def _finding(switch: Place, fsdp: Place) -> Finding:
    return Finding(
        f"{switch.path} on a model that FSDP shards: each layer is gathered twice",
        (switch.label("calls a wrapped layer again"), fsdp.label("", primary=False)),
        (
            (
                "the trainer's recomputation wraps FSDP's layer, whose parameters are gathered for "
                "it and freed again; FSDP's own runs inside the layer"
            ),
            "transformers warns of a redundant AllGather operation in backward pass",
        ),
        "write fsdp_config: {activation_checkpointing: true} instead",
    )


_FAILS: Final = "deepspeed<0.19.3"
_NOT_BY_DEFAULT: Final = "transformers>=5"
_FORCES: Final = "trl>=0.28"
_WHY: Final = (
    "DeepSpeed before 0.19.3 frees frozen weights while a layer is recomputed: recomputed values "
    "have different metadata, of shape [0]"
)


@rule("non-reentrant-adapter-under-zero-3", "error", "step", consumers=(_FAILS,), reads=RECOMPUTED)
def non_reentrant_adapter_under_zero_3(run: LintContext) -> Iterator[Finding]:
    """Non-reentrant checkpointing over weights that are frozen, under ZeRO-3 of older releases."""
    stage = run.slot("zero.stage")
    if stage is None or stage.value != 3 or not recomputes(run) or not has_adapter(run):
        return
    place, where = _not_reentrant(run), run.place(stage)
    if place is None or (_is_trl(place) and run.runs(_FORCES) is not False):
        return
    yield Finding(
        "non-reentrant checkpointing of a frozen base under ZeRO stage 3",
        (place.label("not reentrant"), *also(where, "stage 3")),
        (_WHY,),
        "set use_reentrant to true, use stage 2, or DeepSpeed 0.19.3",
        # Axolotl ships such a file; which DeepSpeed runs it is the user's extra
        severity="warning" if run.of("axolotl") else None,
    )


def _not_reentrant(run: LintContext) -> Place | None:
    """Where a file asks for the variant, or for recomputation where that is the variant."""
    place = reentrant_place(run)
    if place is None or place.value is False:
        return place
    is_default = place.path.rpartition(".")[2] not in ("use_reentrant", "use_reentrant_gc")
    is_known = run.runs(_FAILS) and run.runs(_NOT_BY_DEFAULT) and reentrant(run) is False
    return place if is_default and is_known and not _is_trl(place) else None


def _is_trl(place: Place) -> bool:
    return place.document.kind in TRL


_REENTRANT_OWN = (*TRL, *("llamafactory", "axolotl", "simpletuner", "unsloth"), "alpaca-lora")
"""Trainers that let the input of the first layer require a gradient themselves."""


_ENABLED: Final = re.compile(r"enable_input_require_grads|prepare_model_for_(?:kbit|int8)_training")
"""What a script calls for that: peft 0.10.0 to 0.21.2 utils/other.py
`prepare_model_for_kbit_training` lets the output of the embedding require a gradient."""


@rule(
    "reentrant-over-frozen-base",
    "warning",
    "step",
    consumers=("transformers<5", "axolotl>=0.8"),
    reads=(*RECOMPUTED, "axolotl:unfrozen_parameters"),
)
def reentrant_over_frozen_base(run: LintContext) -> Iterator[Finding]:
    """Reentrant checkpointing over frozen layers, to which no gradient comes."""
    yield from _partly_frozen(run)
    if not recomputes(run) or reentrant(run) is not True or not has_adapter(run):
        return
    place = reentrant_place(run)
    if place is None or run.of(*_REENTRANT_OWN) or run.runs("transformers>=5"):
        return
    if any(each.format == "python" and _ENABLED.search(each.text) for each in run.documents):
        return
    adapter = run.place(run.observed("adapter.kind"))
    yield Finding(
        "reentrant checkpointing over a frozen base: no gradient reaches the adapters",
        (place.label("reentrant"), *also(adapter, "the base is frozen")),
        (
            (
                "it recomputes with gradients only if its input requires one, and the output of a "
                "frozen embedding does not, unless the script calls enable_input_require_grads()"
            ),
        ),
        "set use_reentrant to false",
    )


def _partly_frozen(run: LintContext) -> Iterator[Finding]:
    """Axolotl refuses it itself."""
    for unfrozen in run.each("axolotl", "unfrozen_parameters"):
        document = unfrozen.document
        place = document.get("gradient_checkpointing_kwargs.use_reentrant")
        if unfrozen.value and place is not None and place.value is True:
            yield _refused(place, unfrozen)


def _refused(place: Place, unfrozen: Place) -> Finding:
    return Finding(
        "reentrant checkpointing with partly frozen parameters",
        (place.label("reentrant"), unfrozen.key_label("freezes the rest", primary=False)),
        ("Axolotl refuses it",),
        "set use_reentrant to false",
        severity="error",
        consequence="parse",
    )
