"""FSDP beside other engines, optimizers and releases."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.analyses.fsdp_units import has_buffers
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.launch import is_counted_anew
from tunec.compiler.lints.facts.lora import last, loras
from tunec.compiler.lints.facts.sharding import (
    TURNS_ON,
    asked,
    fsdp_keys,
    is_false,
    is_true,
    offloaded,
)
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule


@rule(
    "error",
    "parse",
    consumers=("axolotl", "transformers"),
    reads=keys("trainer|axolotl", "fsdp", "fsdp_config"),
)
def deepspeed_and_fsdp(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed and FSDP are both requested."""
    for document in run.of("trainer", "axolotl"):
        if document.is_view:
            continue
        engine = document.get("deepspeed")
        shards = document.get("fsdp") or document.get("fsdp_config")
        if engine is None or shards is None or not engine.value or not shards.value:
            continue
        yield Finding(
            "deepspeed and fsdp are both set",
            (engine.label(""), shards.key_label("", primary=False)),
            ("Axolotl refuses it as it reads the file, the trainer when it is set up",),
            "keep one",
            consequence="parse" if document.kind == "axolotl" else "init",
        )


@rule("error", "init", consumers=("accelerate",), reads=TURNS_ON)
def fsdp_2_before_torch_2_6(run: LintContext) -> Iterator[Finding]:
    """FSDP 2 with a torch for which accelerate refuses it, or cannot shard."""
    is_refused = run.runs("torch<2.6") is True
    if not is_refused and not (run.runs("torch<2.7") and run.runs(_GIVES_IGNORED)):
        return
    why = "FSDP2 requires PyTorch >= 2.6.0" if is_refused else f"TypeError: {_IGNORED}"
    for each in asked(run):
        if each.version != 2 or each.who == "axolotl":
            continue
        at = each.get("version") or each.on
        needed = "2.6" if is_refused else f"2.7 with {run.release('accelerate')}"
        yield Finding(
            f"FSDP 2 needs torch {needed}, and {run.release('torch')} runs",
            (at.label("version 2"),),
            (f"accelerate: {why}",),
            "use a newer torch, or fsdp_version 1",
        )


_GIVES_IGNORED: Final = "accelerate>=1.11,<1.13"
_IGNORED: Final = "fully_shard() got an unexpected keyword argument 'ignored_params'"
"""accelerate 1.11.0 and 1.12.0 utils/fsdp_utils.py `fsdp2_prepare_model` always pass the argument;
1.13.0 passes it if torch has it, from 2.7 on."""


_REFUSED: Final = ("adamw_8bit", "adamw_bnb_8bit")
"""Optimizers that Axolotl itself refuses."""


@rule("error", "step", consumers=("bitsandbytes", "axolotl"), reads=("trainer:optim",))
def fsdp_8_bit_optimizer(run: LintContext) -> Iterator[Finding]:
    """An optimizer with 8-bit states whose parameters FSDP shards or offloads."""
    optim = run.said("trainer", "optim")
    if optim is None or not _is_bnb(optim.value):
        return
    for each in asked(run):
        away = offloaded(each)
        if each.version == 2:
            is_refused = each.who == "axolotl" and optim.value in _REFUSED
            second: Consequence = "parse" if is_refused else "step"
            yield _paired(optim.value, "FSDP2", optim, each.on, second)
        elif away is not None:
            when: Consequence = "parse" if each.who == "axolotl" else "step"
            yield _paired(optim.value, "FSDP's offload", optim, away, when)


def _is_bnb(name: object) -> bool:
    return isinstance(name, str) and ("8bit" in name or "paged" in name) and "torch" not in name


def _paired(name: str, what: str, optim: Place, other: Place, consequence: Consequence) -> Finding:
    return Finding(
        f"{name} does not work with {what}",
        (optim.label("needs its parameters on the device"), other.label("", primary=False)),
        ("bitsandbytes steps plain tensors on a CUDA device, by kernels of its own",),
        "use adamw_torch"
        if consequence != "parse"
        else "use adamw_torch_8bit, or adamw_torch with offload",
        consequence=consequence,
        severity=None if consequence == "parse" else "warning",
    )


_KEY: Final = "activation_checkpointing_offload"


@rule("error", "init", consumers=("accelerate>=1.15",), reads=fsdp_keys(_KEY))
def fsdp_activation_offload_refused(run: LintContext) -> Iterator[Finding]:
    """Activation offload without FSDP 2, or without FSDP's activation checkpointing."""
    for each in asked(run):
        place = each.get(_KEY)
        if each.who != "accelerate" or not is_true(place) or place is None:
            continue
        why = None
        if not is_true(each.get("activation_checkpointing")):
            why = "fsdp_activation_checkpointing: true"
        elif each.version != 2:
            why = "fsdp_version: 2"
        if why is not None:
            yield Finding(
                f"fsdp_{_KEY} needs {why}",
                (place.label("refused"), each.on.label("", primary=False)),
                ("what is offloaded is the input of each checkpointed layer",),
                f"write {why}",
            )


_BY_TRAINER: Final = ("gradient_checkpointing", "activation_checkpointing")


@rule("error", "init", consumers=("transformers",), reads=keys("trainer", *_BY_TRAINER))
def fsdp_checkpoints_twice(run: LintContext) -> Iterator[Finding]:
    """The trainer and FSDP both recompute activations."""
    own = run.said("trainer", *_BY_TRAINER)
    if own is None or own.value is not True or own.document.is_view:
        return
    for each in asked(run):
        place = each.get("activation_checkpointing")
        if each.who != "axolotl" and place is not None and is_true(place):
            yield Finding(
                "activation checkpointing is on in fsdp_config and in the trainer",
                (own.label("refused"), place.label("", primary=False)),
                ("FSDP's own saves a gather of each layer's parameters in the backward pass",),
                "keep the one in fsdp_config",
                Fix((own.removed(),), "safe"),
            )


@rule(
    "error", "init", consumers=("accelerate", "transformers"), reads=fsdp_keys("sync_module_states")
)
def fsdp_loads_without_sync(run: LintContext) -> Iterator[Finding]:
    """Only rank 0 loads weights, but they are not sent to the other ranks."""
    for each in asked(run):
        sync, load = each.get("sync_module_states"), each.get("cpu_ram_efficient_loading")
        if sync is None or each.who == "axolotl" or not is_false(sync):
            continue
        if each.who == "accelerate" and (sync.value is not False or is_false(load)):
            continue
        if each.who == "trainer" and not (is_true(load) and _is_refused(run)):
            continue
        yield Finding(
            "cpu_ram_efficient_loading without sync_module_states: only rank 0 has weights",
            (sync.label("the other ranks stay empty"), *also(load)),
            () if load else ("accelerate launch loads on rank 0 only, by default",),
            "write sync_module_states: true",
            Fix((sync.replaced(True),), "safe"),
            consequence="parse" if each.who == "trainer" else None,
        )


def _is_refused(run: LintContext) -> bool:
    return run.runs("transformers>=4.44") is True and run.runs("transformers<=5.6.2") is True


@rule("error", "init", consumers=("transformers", "accelerate"), reads=TURNS_ON)
def fsdp_of_one_process(run: LintContext) -> Iterator[Finding]:
    """FSDP is requested, but only one process is started."""
    world = run.world
    if world is None or world.rank == Rank.CATALOGUE or world.value != 1:
        return
    place = run.place(world)
    if place is None and len(run.of("launch")) > 1:
        return  # one command leaves the number out, and another may be the one with FSDP
    for each in asked(run):
        if each.who == "accelerate" and place is not None and place.document is each.document:
            yield Finding(
                "distributed_type FSDP shards nothing with one process",
                (each.on.label("shards nothing"), place.label("", primary=False)),
                ("torch takes NO_SHARD there: weights and states stay whole on the device",),
                "start one process a device, or leave FSDP out",
                severity="note" if is_counted_anew(run, place) else "warning",
                consequence="silent",
            )
        if each.who == "trainer":
            yield Finding(
                "the trainer refuses fsdp with one process",
                (each.on.label("refused"), *also(place)),
                ("there is no other process to shard with",),
                "start one process a device by torchrun or accelerate launch, or remove fsdp",
            )


@rule("error", "step", consumers=("accelerate",), reads=fsdp_keys("offload_params"))
def fsdp_offload_of_sent_weights(run: LintContext) -> Iterator[Finding]:
    """FSDP 2 keeps weights on the host that accelerate has just sent to the devices."""
    if run.runs("accelerate<1.13") is not True:
        return
    for each in asked(run):
        load, offload = each.get("cpu_ram_efficient_loading"), each.get("offload_params")
        loads = not is_false(load) if each.who == "accelerate" else is_true(load)
        if each.version == 2 and offload is not None and is_true(offload) and loads:
            yield Finding(
                "FSDP 2 offloads parameters that are loaded on rank 0 and sent to the others",
                (
                    offload.label("wants them on the host"),
                    *also(load, "leaves them on the devices"),
                ),
                (
                    "the first forward fails with: FSDP parameters should be materialized on CPU",
                    *(() if load else ("accelerate launch loads this way by default",)),
                ),
                "write cpu_ram_efficient_loading: false, or use accelerate 1.13",
            )


@rule("error", "init", consumers=("accelerate",), reads=fsdp_keys("cpu_ram_efficient_loading"))
def fsdp_2_sends_buffers(run: LintContext) -> Iterator[Finding]:
    """FSDP 2 sends the state of a model that has buffers in it."""
    model = run.model
    packed = run.observed("quantization.format")
    if model is None or not has_buffers(model.architecture):
        return
    if packed is not None and packed.value != "none":
        return  # accelerate 1.15 `fsdp2_prepare_model` sends no packed base
    for each in asked(run):
        load = each.get("cpu_ram_efficient_loading")
        loads = not is_false(load) if each.who == "accelerate" else is_true(load)
        if each.version == 2 and each.who != "axolotl" and loads:
            yield Finding(
                f"FSDP 2 sends the state of {model.path}, which has buffers beside parameters",
                ((load or each.on).label("rank 0 loads, and sends"),),
                ("the run ends with: 'Tensor' object has no attribute 'device_mesh'",),
                "write cpu_ram_efficient_loading: false; each rank then loads the whole model",
            )


@rule("error", "step", consumers=("transformers",), reads=("trainer:predict_with_generate",))
def generation_under_fsdp_1(run: LintContext) -> Iterator[Finding]:
    """A model generates text while FSDP 1 has split its parameters and does not gather them."""
    if run.runs("transformers<4.46") is not True:
        return
    told = [each for each in asked(run) if each.version == 1]
    for place in run.each("trainer", "predict_with_generate"):
        if place.value is not True or not told:
            continue
        yield Finding(
            "evaluation generates under FSDP, whose parameters this release does not make whole",
            (place.label("generates in evaluation"), told[0].on.label("splits", primary=False)),
            (
                (
                    "generate is called on the wrapped model: what lies outside of its layers, the "
                    "embedding first, is still one flat share"
                ),
            ),
            "use transformers 4.46 or later, or evaluate by loss",
        )


_IN_TILES: Final = ("dpo", "grpo", "kto", "rloo")
"""Trainers besides SFT's whose loss reads the head itself, from trl 1.15 on."""


@rule("error", "silent", consumers=("trl>=1.7",), reads=TURNS_ON)
def fsdp_head_of_one_rank(run: LintContext) -> Iterator[Finding]:
    """TRL's loss reads a trained output projection that FSDP 2 keeps in a separate unit."""
    head = _trained_head(run)
    if head is None or run.runs("accelerate<1.14") is True or not _is_in_tiles(run):
        return
    for each in asked(run):
        if each.version == 2:
            yield Finding(
                "each rank of FSDP 2 trains its part of lm_head on its own batch alone",
                ((each.get("version") or each.on).label("sums no gradient of it"), *also(*head)),
                (
                    "TRL's loss reads lm_head.weight and calls no module, so no hook of FSDP runs",
                    "all other parameters have the mean of all ranks",
                ),
                "use fsdp_version 1 or DeepSpeed"
                if head[0] is None
                else "leave lm_head out of what is trained, or use fsdp_version 1 or DeepSpeed",
            )


def _is_in_tiles(run: LintContext) -> bool:
    plain = [each.value("loss_type", "chunked_nll") for each in run.of("sft")]
    others = run.of(*_IN_TILES) and run.runs("trl<1.15") is not True
    is_only_way = run.runs("trl>=1.15") is True
    return bool(others) or any(is_only_way or each == "chunked_nll" for each in plain)


def _trained_head(run: LintContext) -> tuple[Place | None, str] | None:
    """The key that names a head trained beside an adapter, and how the finding describes the head.

    No key, if a vision-language model is trained in full. In a text model FSDP puts the norm before
    the head, which the model calls, into the head's unit, unless PEFT or a vision-language model
    hides the norm.
    """
    for lora in loras(run):
        saved = lora.place("modules_to_save")
        value = None if saved is None else saved.value
        named = value if isinstance(value, list | tuple) else (value,)
        if "lm_head" in {last(str(each)) for each in named}:
            return saved, "is trained"
    model = run.model.architecture if run.model is not None else None
    is_whole = run.value("adapter.kind", "none") == "none"
    if model is None or not is_whole or model.tied or model.kind != "vision-language":
        return None
    return None, ""
