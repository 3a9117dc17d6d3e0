"""choose_precision: the arithmetic in which the model trains, by what the devices support."""

from collections.abc import Sequence
from typing import Final

from packaging.version import Version

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Option, Outcome, Scribe, device, model, slot, spec
from tunec.compiler.passes.fit.states import makes_adapters_bf16
from tunec.schemas.hardware.profile import Device
from tunec.schemas.models.overflows import overflow_source
from tunec.schemas.terms import FloatDtype

# DeepSpeed's own defaults (deepspeed/runtime/precision_config.py, DeepSpeedFP16Config, 0.19.8),
# written out because a plan leaves nothing to a default.
_LOSS_SCALING = {
    "precision.initial_scale_power": 16,
    "precision.loss_scale_window": 1000,
    "precision.hysteresis": 2,
    "precision.min_loss_scale": 1,
}


def choose_precision(facts: Facts, _: Draft) -> Outcome:
    """Choose a compute dtype that every device supports natively and the model trains in."""
    scribe = Scribe(facts)
    devices = facts.selection.devices
    overflow = overflow_source(facts.model.architecture.family, facts.model.stored_dtype)
    order: tuple[FloatDtype, ...] = ("bf16", "fp32", "fp16") if overflow else _FASTEST_FIRST
    options = [_option(dtype, facts, devices) for dtype in order]
    wish = facts.spec.precision.compute
    compute = scribe.choose("precision.compute", options, "E0601", wish, "precision.compute")
    if compute == "fp32" and wish is None:
        _slowed(scribe, options, overflow)
    scaling = "dynamic" if compute == "fp16" else "none"
    why = (
        "fp16 gradients underflow" if compute == "fp16" else f"{compute} has fp32's exponent range"
    )
    scribe.say("precision.loss_scaling", scaling, why, slot("precision.compute"))
    for path, value in _LOSS_SCALING.items():
        scribe.say(
            path, value, "the usual default of DeepSpeed and torch", slot("precision.compute")
        )
    _tf32(scribe, devices)
    scribe.say(
        "precision.deprecated_fp16",
        facts.spec.precision.deprecated_fp16 and compute == "fp16",
        "enabled by the spec" if facts.spec.precision.deprecated_fp16 else "not enabled",
        spec("precision.deprecated_fp16"),
    )
    return scribe.outcome()


def _slowed(scribe: Scribe, options: Sequence[Option], overflow: str | None) -> None:
    """Report what rules out fp16 on devices that have it, and what allows it.

    `overflow`: the source that says that the model overflows it.
    """
    facts = scribe.facts
    why = _fp16_over_bf16(facts)
    instead = "request an earlier trl, such as `trl@0.25`: it trains them in fp32 alongside fp16"
    if overflow and all(each.precisions["fp16"] == "native" for each in facts.selection.devices):
        why = f"{facts.model.path} overflows fp16, which ends at 65504"
        instead = "use devices with bf16"
        if any(each.value == "fp16" and each.refused is None for each in options):
            instead += ", or `--set precision=fp16`, and watch for a loss of nan"
    if why is not None:
        scribe.report(
            "half-precision-ruled-out",
            "warning",
            f"{why}: fp32 is used, which is several times slower on such devices",
            "hardware",
            help=instead,
            notes=(overflow,) if overflow else (),
        )


_FASTEST_FIRST: Final[tuple[FloatDtype, ...]] = ("bf16", "fp16", "fp32")


def _option(dtype: FloatDtype, facts: Facts, devices: tuple[Device, ...]) -> Option:
    refused = _model_refuses(dtype, facts) or next(
        filter(None, (_device_refuses(dtype, facts, each) for each in devices)), None
    )
    rests = tuple(device(each.name, f"precisions.{dtype}") for each in devices)
    return Option(dtype, _MERITS[dtype], refused, (*rests, model("precision_refused")))


_MERITS: dict[FloatDtype, str] = {
    "bf16": "fast, and needs no loss scaling",
    "fp16": "the fastest these devices have; needs loss scaling",
    "fp32": "always accurate, but slow",
}


def _model_refuses(dtype: FloatDtype, facts: Facts) -> str | None:
    card = facts.model.card
    refusal = card.precision_refused.get(dtype) if card else None
    return (
        f"{card.name} does not train in this precision: {refusal.reason}"
        if card and refusal
        else None
    )


def _device_refuses(dtype: FloatDtype, facts: Facts, each: Device) -> str | None:
    support = each.precisions[dtype]
    if support == "absent":
        return f"{each.title} does not support it"
    if dtype == "bf16" and support == "emulated":
        return (
            f"{each.title} ({_generation(each)}) has no bf16 units; libraries that report "
            "support emulate it by conversion"
        )
    if dtype == "fp16":
        return _fp16_refused(facts, each) or _fp16_over_bf16(facts)
    return None


def _fp16_refused(facts: Facts, each: Device) -> str | None:
    """DeepSpeed's own check: `CUDA_Accelerator.is_fp16_supported` (0.13.2 to 0.19.8)."""
    capability = each.compute_capability
    if capability is None or capability >= (7, 0):
        return None
    engine = facts.pinned("parallel.engine", facts.spec.engine)
    if engine in ("none", "ddp", "fsdp"):
        return None
    if capability >= (6, 0) and facts.spec.precision.deprecated_fp16:
        return None
    return (
        f"DeepSpeed refuses it on {each.title} ({_generation(each)}, needs 7.0): "
        "'Type fp16 is not supported on your device'"
    )


def _fp16_over_bf16(facts: Facts) -> str | None:
    """Why fp16 cannot compute: TRL trains adapters over a quantised base in bf16 in any case.

    On CUDA no scaled gradient may be bf16 (torch 2.13 amp/grad_scaler.py `_unscale_grads_`).
    """
    trl, engine = facts.versions.get("trl"), facts.pinned("parallel.engine", facts.spec.engine)
    method = facts.spec.method
    if trl is None or engine == "deepspeed" or not (method.qlora or method.int8_lora):
        return None
    if not makes_adapters_bf16(Version(trl), of_pairs=facts.spec.objective.dpo is not None):
        return None
    return f"trl {trl} trains these adapters in bf16, whose gradients torch's loss scaler refuses"


def _generation(each: Device) -> str:
    if each.compute_capability is None:
        return each.architecture
    return "compute capability {}.{}".format(*each.compute_capability)


def _tf32(scribe: Scribe, devices: tuple[Device, ...]) -> None:
    has = all(each.precisions["tf32"] == "native" for each in devices)
    # transformers 4.40.2 to 5.23.0 utils/import_utils.py `is_torch_tf32_available`: False where
    # torch is built without CUDA, and TrainingArguments then refuse tf32
    switched = all(each.vendor == "nvidia" for each in devices)
    if has and switched:
        why = "the remaining fp32 matrix products run on TF32 units"
    else:
        why = "torch enables TF32 on NVIDIA devices only" if has else "these devices have no TF32"
    scribe.say("precision.tf32", has and switched, why, device(devices[0].name, "precisions.tf32"))
