"""The checkpoints that FSDP saves, and recomputation of layers that it shards."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.lora import has_adapter
from tunec.compiler.lints.facts.sharding import (
    TURNS_ON,
    FsdpSettings,
    asked,
    fsdp_keys,
    is_true,
    offloaded,
)
from tunec.compiler.lints.rule import Finding, rule

_BNB: Final = frozenset(
    {
        *("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "lion_8bit", "paged_lion_8bit"),
        *("ademamix_8bit", "paged_ademamix_8bit", "rmsprop_bnb_8bit"),
    }
)
_TORCHAO: Final = frozenset(
    {*("adamw_torch_8bit", "adamw_torch_4bit"), *("ao_adamw_8bit", "ao_adamw_4bit", "ao_adamw_fp8")}
)
"""transformers 5.23.0 training_args.py `OptimizerNames`; axolotl 0.19.0 utils/schemas/enums.py
`CustomSupportedOptimizers`."""
_MENDED: Final = "bitsandbytes>=0.49.2"


@rule("warning", "save", consumers=("torch", "bitsandbytes", "axolotl"), reads=("trainer:optim",))
def fsdp_8_bit_states_lost(run: LintContext) -> Iterator[Finding]:
    """FSDP cannot gather the states of a quantised optimizer for a checkpoint."""
    optim = run.said("trainer", "optim")
    is_hidden = run.hides("trainer", "save_strategy", "save_only_model")
    if optim is None or is_hidden or not _is_saved(run):
        return
    for each in asked(run):
        why = _why(run, str(optim.value), each)
        if why:
            yield _states_lost(optim, each, why)


def _is_saved(run: LintContext) -> bool:
    strategy, alone = run.said("trainer", "save_strategy"), run.said("trainer", "save_only_model")
    is_off = strategy is not None and strategy.value in ("no", False)
    return not is_off and not (alone is not None and alone.value is True)


def _why(run: LintContext, name: str, each: FsdpSettings) -> str:
    if each.version == 2 or offloaded(each) is not None:
        return ""  # it does not come so far: `fsdp-8-bit-optimizer`
    if name in _BNB and run.runs(_MENDED) is not True:
        return "bitsandbytes before 0.49.2: absmax differs in length from the parameter"
    if name in _TORCHAO and each.version == 1:
        return "torchao: NotImplementedError, OptimState8bit has no new_zeros"
    return ""


def _states_lost(optim: Place, each: FsdpSettings, why: str) -> Finding:
    is_caught = each.who == "axolotl" and str(optim.value) in _TORCHAO
    after = ("Axolotl continues without the states: no checkpoint can be resumed",)
    return Finding(
        f"the states of {optim.value} cannot be gathered by FSDP for a checkpoint",
        (optim.label("quantised states"), each.on.key_label("", primary=False)),
        (why, *(after if is_caught else ())),
        "use adamw_torch_fused, or write save_only_model: true",
    )


_FULL: Final = ("FULL_STATE_DICT", "1")


@rule("error", "resume", consumers=("accelerate",), reads=fsdp_keys("state_dict_type"))
def fsdp_adapter_of_one_rank(run: LintContext) -> Iterator[Finding]:
    """A checkpoint of FSDP 2 holds only the first process's part of the adapter."""
    if run.runs("accelerate<1.15") is not True or not run.of("trainer"):
        return
    if run.value("adapter.kind", "none") == "none":
        return
    only = run.said("trainer", "save_only_model")
    if only is not None and only.value is True:
        return
    for each in asked(run):
        place = each.get("state_dict_type")
        if each.version != 2 or place is None or str(place.value).upper() not in _FULL:
            continue
        yield Finding(
            "a checkpoint of FSDP 2 holds rank 0's part of the adapter only",
            (place.label("the other parts are not gathered"),),
            (
                "a resumed run starts with fresh values for the parts of all other processes",
                "the model that is saved at the end is whole",
            ),
            "write SHARDED_STATE_DICT, or use accelerate 1.15",
            # Axolotl ships such files; that its resumed runs suffer was not shown
            severity="warning" if run.of("axolotl") else None,
        )


_SHARDS: Final = ("SHARDED_STATE_DICT", "LOCAL_STATE_DICT")


@rule("error", "save", consumers=("peft>=0.21",), reads=TURNS_ON)
def fsdp_adapter_saved_empty(run: LintContext) -> Iterator[Finding]:
    """PEFT does not find the adapters of layers that FSDP has wrapped, and saves none."""
    if run.runs("peft>=0.21") is not True or not run.of("trainer"):
        return
    if run.value("adapter.kind", "none") == "none":
        return
    for each in asked(run):
        form, own = each.get("state_dict_type"), each.get("activation_checkpointing")
        if each.who == "axolotl" or (form and str(form.value).upper() in _SHARDS):
            continue
        if each.version == 1:
            yield _saved_empty(each.on, "FSDP 1", "use FSDP 2, or peft 0.20")
        elif each.version == 2 and own is not None and is_true(own):
            instead = "let the trainer recompute: gradient_checkpointing: true; or use peft 0.20"
            yield _saved_empty(own, "FSDP's recomputation", instead)


def _saved_empty(at: Place, what: str, help: str) -> Finding:
    return Finding(
        f"the adapter below {what} is saved without its tensors",
        (at.label("wraps each layer"),),
        (
            (
                "PEFT looks for tensors by the names of the model's modules, which hold the "
                "wrapper's; those in the state dict that is saved do not"
            ),
            "adapter_model.safetensors is empty, in checkpoints and in the end",
        ),
        help,
    )


@rule("warning", "save", consumers=("transformers",), reads=fsdp_keys("state_dict_type"))
def fsdp_model_left_in_shards(run: LintContext) -> Iterator[Finding]:
    """Training ends without a model that from_pretrained can load."""
    saves = run.said("trainer", "save_only_model")
    is_open = not run.of("trainer") or run.hides("trainer", "save_only_model")
    if is_open or (saves is not None and saves.value is True):
        return
    for each in asked(run):
        place = each.get("state_dict_type")
        if place is None or str(place.value).upper() not in _SHARDS or each.who == "axolotl":
            continue
        yield Finding(
            f"with {place.value} the trainer saves shards, and no model at the end",
            (place.label("nothing to load with from_pretrained"),),
            (
                "save_model writes weights for FULL_STATE_DICT only; checkpoints hold shards",
                "accelerate merge-weights turns a checkpoint's shards into a model",
            ),
            "write FULL_STATE_DICT, or merge the shards after training",
            Fix((place.replaced("FULL_STATE_DICT"),), "unsafe"),
        )


_NAMES: Final = ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT", "1", "2", "3")


@rule("error", "init", consumers=("accelerate",), reads=fsdp_keys("state_dict_type"))
def fsdp_state_dict_refused(run: LintContext) -> Iterator[Finding]:
    """A `state_dict_type` that FSDP does not have."""
    for each in asked(run):
        place = each.get("state_dict_type")
        if place is None:
            continue
        value = str(place.value).upper()
        if value not in _NAMES:
            yield Finding(
                f"state_dict_type {place.value} does not exist",
                (place.label("refused"),),
                (f"the types are {', '.join(_NAMES[:3])}",),
                "write SHARDED_STATE_DICT or FULL_STATE_DICT",
            )
        elif each.version == 2 and value in ("LOCAL_STATE_DICT", "2"):
            yield Finding(
                "FSDP2 has no LOCAL_STATE_DICT",
                (place.label("refused"), each.on.label("", primary=False)),
                (),
                "write SHARDED_STATE_DICT",
                Fix((place.replaced("SHARDED_STATE_DICT"),), "unsafe"),
            )


@rule("error", "init", consumers=("transformers>=4.51",), reads=("trainer:save_only_model",))
def fsdp_weights_only_in_shards(run: LintContext) -> Iterator[Finding]:
    """Only the weights are saved, and they are saved in shards."""
    only = run.said("trainer", "save_only_model")
    if only is None or only.value is not True:
        return
    for each in asked(run):
        place = each.get("state_dict_type")
        if place is not None and str(place.value).upper() in ("SHARDED_STATE_DICT", "3"):
            yield Finding(
                "the trainer refuses save_only_model with SHARDED_STATE_DICT",
                (only.label("refused"), place.label("", primary=False)),
                ("it saves shards only together with the states that resume them",),
                "write FULL_STATE_DICT, or drop save_only_model",
            )


_SWITCHES: Final = ("gradient_checkpointing", "activation_checkpointing")
_GATHERED_OWN: Final = (
    "fsdp_config.activation_checkpointing",
    "fsdp_config.fsdp_activation_checkpointing",
)
_WHOLE: Final = ("full_shard", "hybrid_shard")


@rule("warning", "slow", consumers=("transformers<4.53",), reads=("trainer:fsdp",))
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
        yield _gathered_twice(switch, fsdp)


def _switch(document: Document) -> Place | None:
    found = (document.get(key) for key in _SWITCHES)
    return next((at for at in found if at is not None and at.value is True), None)


def _shards(said: Any) -> bool:
    """Whether FSDP frees the gathered parameters after each layer."""
    words = said.replace(",", " ").split() if isinstance(said, str) else said
    return isinstance(words, list) and any(each in _WHOLE for each in words)


def _gathered_twice(switch: Place, fsdp: Place) -> Finding:
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
