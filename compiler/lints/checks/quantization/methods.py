"""Quantisation beside a method that it excludes."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.quantization import QUANTISED, published, quantised, stored_form
from tunec.compiler.lints.rule import Consequence, Finding, rule


@rule("int8-products-in-fp16", "note", "silent", consumers=("transformers",), reads=QUANTISED)
def int8_products_in_fp16(run: LintContext) -> Iterator[Finding]:
    """LLM.int8() computes in fp16 whatever the run's dtype is."""
    base = quantised(run)
    if base is None or base.form != "int8" or base.document.kind == "simpletuner":
        return
    computed = run.observed("precision.compute")
    place = run.place(computed)
    if computed is None or place is None or computed.value != "bf16":
        return
    yield Finding(
        "8-bit products are made in fp16, and the run computes in bf16",
        (base.place.label("LLM.int8()"), place.label("bf16", primary=False)),
        (
            (
                "bitsandbytes casts each input to fp16: activations past 65504 overflow, which "
                "models trained in bf16 may have"
            ),
        ),
        "use 4 bits with bnb_4bit_compute_dtype bfloat16 if the loss turns nan",
    )


@rule(
    "merge-into-quantised-base",
    "error",
    "load",
    consumers=("axolotl", "llamafactory"),
    reads=("axolotl:merge_lora", "llamafactory:export_dir"),
)
def merge_into_quantised_base(run: LintContext) -> Iterator[Finding]:
    """An adapter is to be merged into a base that is loaded quantised."""
    for document in run.of("axolotl", "llamafactory"):
        is_axolotl = document.kind == "axolotl"
        found = _axolotl(document) if is_axolotl else _llamafactory(run, document)
        if found is None:
            continue
        merged, base, when = found
        yield Finding(
            "an adapter is to be merged into a quantised base",
            (merged.key_label("merges"), base.label("quantised", primary=False)),
            ("packed weights cannot take the adapter's product in",),
            "merge into the base in bf16 or fp16, and quantise the result",
            consequence=when,
        )


Merge = tuple[Place, Place, Consequence]


def _axolotl(document: Document) -> Merge | None:
    merged, adapter = document.get("merge_lora"), document.value("adapter")
    if merged is None or merged.value is not True or adapter != "qlora":
        return None
    for key in ("load_in_8bit", "gptq", "load_in_4bit"):
        base = document.get(key)
        if base is not None and base.value is True:
            return merged, base, "parse"
    return None


def _llamafactory(run: LintContext, document: Document) -> Merge | None:
    """`llamafactory-cli export` with an adapter, and bits or a base that is stored so."""
    merged, adapter = document.get("export_dir"), document.get("adapter_name_or_path")
    if merged is None or adapter is None or not merged.value or not adapter.value:
        return None
    after = document.get("export_quantization_bit")
    if after is not None and after.value is not None:
        return merged, after, "init"
    base = document.get("quantization_bit")
    if base is not None and base.value is not None:
        return merged, base, "load"
    stored = stored_form(run)
    return None if stored is None else (merged, stored[1], "load")


_SAME = {"nf4": "bnb-4bit", "fp4": "bnb-4bit", "int8": "bnb-8bit"}
_BY_BITSANDBYTES = ("bnb-4bit", "bnb-8bit")


@rule(
    "quantised-twice", "error", "load", consumers=("transformers", "llamafactory"), reads=QUANTISED
)
def quantised_twice(run: LintContext) -> Iterator[Finding]:
    """A base that is stored quantised is to be quantised again."""
    base, stored = quantised(run), stored_form(run) or published(run)
    if base is None or stored is None or base.document.kind == "simpletuner":
        return
    form, name = stored
    if _SAME.get(base.form) == form or form in ("int4", "int8", "4bit", "8bit"):
        return
    ignored = base.document.kind == "llamafactory" or form in _BY_BITSANDBYTES
    yield Finding(
        f"{name.value} is stored as {form}, and is asked for in {base.form}",
        (base.place.label(f"{base.form}"), name.label(f"{form}", primary=False)),
        (
            "what is stored holds, and the rest is ignored"
            if ignored
            else "from_pretrained refuses a configuration of another class than the stored one",
        ),
        "name the base that is stored in 16 bits, or ask for no quantisation",
        consequence="silent" if ignored else "load",
        severity="warning" if ignored else None,
    )


Test = Callable[[Document, Any], bool]


def _on(_: Document, value: Any) -> bool:
    return value is True


def _is_several(_: Document, value: Any) -> bool:
    return len(value) > 1 if isinstance(value, list) else "," in str(value or "")


def _beside_adapter(document: Document, value: Any) -> bool:
    return value is True and bool(document.value("adapter_name_or_path"))


def _is_auto(document: Document, value: Any) -> bool:
    return bool(value == "auto") and document.value("do_train") is True


def _by_lora_in_8_bits(document: Document, value: Any) -> bool:
    return value is True and document.value("adapter") == "lora" and _in_8_bits(document)


def _in_8_bits(document: Document) -> bool:
    return document.value("load_in_8bit") is True


def _is_fp8(document: Document, value: Any) -> bool:
    return bool(value == "fp8" and document.value("base_model_precision") != "fp8-torchao")


_REFUSED: Final[tuple[tuple[str, str, Test, str], ...]] = (
    ("llamafactory", "pissa_init", _on, "use scripts/pissa_init.py first"),
    ("llamafactory", "resize_vocab", _on, "resize the base before it is quantised"),
    ("llamafactory", "create_new_adapter", _beside_adapter, "merge the old adapter first"),
    ("llamafactory", "adapter_name_or_path", _is_several, "merge the adapters first"),
    ("llamafactory", "quantization_device_map", _is_auto, "leave it out in training"),
    ("llamafactory", "fp8", _on, "turn one of the two off"),
    ("axolotl", "lora_mlp_kernel", _by_lora_in_8_bits, "use 4 bits, or no kernels"),
    ("axolotl", "lora_qkv_kernel", _by_lora_in_8_bits, "use 4 bits, or no kernels"),
    ("axolotl", "lora_o_kernel", _by_lora_in_8_bits, "use 4 bits, or no kernels"),
    ("simpletuner", "mixed_precision", _is_fp8, "use bf16"),
)
"""Kind, key, when it is refused, what helps."""


@rule(
    "refused-beside-quantisation",
    "error",
    "parse",
    consumers=("llamafactory", "axolotl", "simpletuner"),
    reads=tuple(f"{kind}:{key}" for kind, key, _, _ in _REFUSED),
)
def refused_beside_quantisation(run: LintContext) -> Iterator[Finding]:
    """Options that a trainer refuses beside a quantised base."""
    base = quantised(run)
    if base is None:
        return
    for kind, key, is_refused, mended in _REFUSED:
        place = base.document.get(key) if base.document.kind == kind else None
        if place is not None and is_refused(base.document, place.value):
            yield _finding(place, base.place, mended)


def _finding(place: Place, base: Place, mended: str) -> Finding:
    return Finding(
        f"{place.path} beside a quantised base",
        (place.key_label("refused"), base.label("quantised", primary=False)),
        (),
        mended,
    )
