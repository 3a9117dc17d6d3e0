"""choose_quantization: how the frozen base is stored."""

from typing import Final

from packaging.version import Version

from tunec.compiler.facts import Facts
from tunec.compiler.ir.ledger import Origin
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Option, Outcome, Scribe, device, slot, spec
from tunec.compiler.passes.quantized_base import in_own_dtype, report_head, with_base
from tunec.schemas.hardware.profile import Device
from tunec.schemas.models.published_form import TITLES
from tunec.schemas.terms import FloatDtype, QuantFormat

# bitsandbytes' own support table (docs/source/installation.mdx, 0.45 to 0.50): LLM.int8() from
# compute capability 7.5, NF4/FP4 and 8-bit optimizers from 6.0.
_LEAST_CAPABILITY: dict[QuantFormat, tuple[int, int]] = {
    "int8": (7, 5),
    "nf4": (6, 0),
    "fp4": (6, 0),
}
_MERITS: dict[QuantFormat, str] = {
    "int8": "int8_lora stores the frozen base in 8 bits",
    "nf4": "qlora stores the frozen base in 4 bits",
    "fp4": "qlora stores the frozen base in 4 bits",
}


def choose_quantization(facts: Facts, draft: Draft) -> Outcome:
    """Store the base as the method requires, if every device supports it."""
    scribe = Scribe(facts)
    method, (asked, where) = facts.spec.method, _asked(facts)
    devices = facts.selection.devices
    taken = _quantised_already(draft.model.published) or _unpacked(facts)
    options = [_option(asked, devices, taken)]
    if asked == "int8":
        options.append(_option("nf4", devices, taken))
    wish = None if asked == "none" else asked
    chosen = scribe.choose(
        "quantization.format",
        options,
        "E0602",
        wish,
        where,
        otherwise=in_own_dtype(method),
        setting=lambda _: with_base(method, "qlora"),
    )
    quantised = chosen != "none"
    double = facts.spec.method.qlora.double if facts.spec.method.qlora else False
    compute = draft.precision.compute
    scribe.say("quantization.double", double and quantised, "as the method says", spec(where))
    scribe.say(
        "quantization.compute",
        compute,
        "weights are expanded into the compute dtype",
        slot("precision.compute"),
    )
    _say_storage(scribe, chosen, compute)
    if quantised:
        report_head(scribe)
    return scribe.outcome()


_LIKE_WEIGHTS: Final = Version("0.10"), Version("0.26")
"""The first release of TRL that packs 4-bit weights in the weights' dtype, and the first that has a
key for the storage dtype (trainer/utils.py `get_quantization_config`: bnb_4bit_quant_storage)."""


def _say_storage(scribe: Scribe, chosen: QuantFormat, compute: FloatDtype) -> None:
    """Decide the dtype that holds packed weights: the compute dtype, or uint8.

    FSDP shards only tensors of a floating-point dtype (bitsandbytes docs/source/fsdp_qlora.md).
    """
    facts, rests = scribe.facts, [slot("quantization.format")]
    named, (since, until) = facts.versions.get("trl"), _LIKE_WEIGHTS
    storage: FloatDtype | None = None
    reason = "packed into uint8, as bitsandbytes does"
    if chosen not in ("nf4", "fp4"):
        reason = "no weights are packed"
    elif named is not None and since <= Version(named) < until:
        storage, reason = (
            compute,
            f"trl {named} packs into the dtype in which the weights are loaded",
        )
        rests += [slot("quantization.compute"), Origin("spec", "software.trl")]
    elif facts.pinned("parallel.engine", facts.spec.engine) == "fsdp":
        storage, reason = compute, "FSDP shards packed weights only in a float dtype"
        rests += [slot("quantization.compute"), spec("engine")]
    elif facts.tries_fsdp:
        storage, reason = (
            compute,
            "FSDP, which the search also tries, shards them only in a float dtype",
        )
        rests += [slot("quantization.compute"), Origin("spec", "targets")]
    scribe.say("quantization.storage", storage, reason, *rests)


def _asked(facts: Facts) -> tuple[QuantFormat, str]:
    method = facts.spec.method
    if method.qlora is not None:
        return method.qlora.format, "method.qlora"
    if method.int8_lora is not None:
        return "int8", "method.int8_lora"
    return "none", "method"


def _quantised_already(published: str) -> str | None:
    """Why a published quantised base cannot be quantised again.

    It raises ValueError (transformers 4.56 to 5.23 quantizers/auto.py
    `merge_quantization_configs`).
    """
    if published == "none":
        return None
    return (
        f"the weights are published in {TITLES[published]}, beside which from_pretrained takes "
        "no configuration of bitsandbytes"
    )


def _unpacked(facts: Facts) -> str | None:
    """Why the model's class cannot run on packed weights."""
    reason = facts.model.architecture.unpacked
    return f"the model's class fails over packed weights: {reason}" if reason else None


def _option(format: QuantFormat, devices: tuple[Device, ...], taken: str | None) -> Option:
    if format == "none":
        return Option("none", "the method keeps the base in its own dtype", rests=(spec("method"),))
    refused = next(filter(None, (taken, *(_refused(format, each) for each in devices))), None)
    rests = tuple(device(each.name, "compute_capability") for each in devices)
    return Option(format, _MERITS[format], refused, rests)


def _refused(format: QuantFormat, each: Device) -> str | None:
    least = _LEAST_CAPABILITY[format]
    capability = each.compute_capability
    if capability is None:
        return None if each.vendor == "amd" else f"bitsandbytes does not run on {each.title}"
    if capability >= least:
        return None
    return (
        f"bitsandbytes needs compute capability {least[0]}.{least[1]}; "
        f"{each.title} has {capability[0]}.{capability[1]}"
    )
