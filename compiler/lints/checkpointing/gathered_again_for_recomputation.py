"""The trainer recomputes activations of a model that FSDP shards."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.adapter.lora import has_adapter
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SWITCHES: Final = ("gradient_checkpointing", "activation_checkpointing")
_OWN: Final = ("fsdp_config.activation_checkpointing", "fsdp_config.fsdp_activation_checkpointing")
_WHOLE: Final = ("full_shard", "hybrid_shard")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        fsdp, switch = document.get("fsdp"), _switch(document)
        if fsdp is None or switch is None or document.is_view or not _shards(fsdp.value):
            continue
        if document.kind == "llamafactory" or any(document.value(key) for key in _OWN):
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
        f"{switch.path} of a model that FSDP shards: each layer is gathered once more",
        (switch.label("calls a wrapped layer again"), fsdp.label("", primary=False)),
        (
            (
                "the trainer's recomputation is around FSDP's layer, whose parameters are gathered "
                "for it and given back; FSDP's own is inside"
            ),
            "transformers warns of a redundant AllGather operation in backward pass",
        ),
        "write fsdp_config: {activation_checkpointing: true} instead",
    )


RULE = Rule(
    name="gathered-again-for-recomputation",
    severity="warning",
    consequence="slow",
    consumers=("transformers<4.53",),
    sources=(
        (
            "transformers 4.44.2 to 5.23.0 training_args.py: use `activation_checkpointing` in "
            "`fsdp_config`; 4.40.2 to 4.51.3 models/llama/modeling_llama.py: checkpoints "
            "decoder_layer.__call__, which is FSDP's; 4.57.6 modeling_layers.py "
            "`GradientCheckpointingLayer` is inside it"
        ),
        "huggingface/transformers#30404, pytorch/pytorch#105635",
    ),
    check=_check,
)
