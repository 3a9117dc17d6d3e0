"""Bits and dtypes of a quantised base."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Place
from tunec.compiler.lints.facts.precision import BLOCKS, LOADERS, QUANTISED, Base, blocks, quantised
from tunec.compiler.lints.facts.training_loop import is_started_by_trl
from tunec.compiler.lints.rule import Finding, keys, rule

_COMPUTE: Final = "bnb_4bit_compute_dtype"
_STORAGE: Final = "bnb_4bit_quant_storage"
_KNOWN_DTYPES: Final = (
    *("bfloat16", "float16", "float32", "float64", "half", "float", "double"),
    *("int8", "uint8"),
)
"""torch attributes that are dtypes; the storage dtype only accepts the long names."""
_HELD: Final = ("float16", "float32", "int8", "uint8", "float64", "bfloat16")
_SHORT: Final = {
    **dict.fromkeys(("bf16", "torch.bfloat16", "auto"), "bfloat16"),
    **dict.fromkeys(("fp16", "torch.float16"), "float16"),
    **dict.fromkeys(("fp32", "torch.float32"), "float32"),
}


@rule(
    "error",
    "load",
    consumers=("trl", "transformers", "axolotl"),
    reads=(
        *keys("model|trainer", "load_in_4bit", _COMPUTE, _STORAGE),
        *BLOCKS,
        "axolotl:bnb_config_kwargs",
    ),
)
def compute_dtype_unknown(run: LintContext) -> Iterator[Finding]:
    """The compute or storage dtype of 4-bit weights is none of torch's: `auto`, `bf16`."""
    for document in run.of(*TRL):
        bits = where(document, "load_in_4bit=true")
        at = where(document, "dtype=auto") or where(document, "torch_dtype=auto")
        if bits is None or at is None or document.is_view:
            continue
        if document.format == "shell" and not is_started_by_trl(run, document):
            continue
        yield Finding(
            f"{at.path} auto is no dtype for the products of 4-bit weights",
            (at.label("handed on as it is"), bits.label("", primary=False)),
            ("AttributeError: module 'torch' has no attribute 'auto'",),
            f"write {at.path}: bfloat16",
        )
    for at in _named(run):
        held = at.path.endswith(_STORAGE)
        if isinstance(at.value, str) and at.value not in (_HELD if held else _KNOWN_DTYPES):
            yield _unknown(at, at.value, held=held)


def _named(run: LintContext) -> Iterator[Place]:
    """The places of both dtypes: in files and blocks about loading, and in Axolotl's own keys."""
    beside = [(each, "") for each in run.of("model", *TRL)]
    inside = [(each.document, f"{each.path}.") for each in blocks(run)]
    axolotl = [(each, "bnb_config_kwargs.") for each in run.of("axolotl")]
    for document, prefix in (*beside, *inside, *axolotl):
        for key in (_COMPUTE, _STORAGE) if not document.is_view else ():
            at = document.get(f"{prefix}{key}")
            if at is not None:
                yield at


def _unknown(at: Place, word: str, *, held: bool) -> Finding:
    meant = _SHORT.get(word)
    return Finding(
        f"{at.path.rpartition('.')[2]} {word} is no dtype of torch",
        (at.label("refused"),),
        (
            "`bnb_4bit_quant_storage` must be a valid string"
            if held
            else f"AttributeError: module 'torch' has no attribute '{word}'",
        ),
        f"write {meant or 'bfloat16'}",
        Fix((at.replaced(meant),), "safe") if meant and word != "auto" else None,
        severity="warning" if at.path.startswith("bnb_config.") else None,  # a script reads it
    )


@rule(
    "error",
    "parse",
    consumers=("trl", "axolotl", "transformers"),
    reads=keys("model|trainer|axolotl", "load_in_8bit"),
)
def four_and_eight_bits(run: LintContext) -> Iterator[Finding]:
    """4 and 8 bits are both requested."""
    for document in run.of(*LOADERS, "axolotl"):
        four, eight = document.get("load_in_4bit"), document.get("load_in_8bit")
        if document.is_view or four is None or eight is None:
            continue
        if four.value is not True or eight.value is not True:
            continue
        silent = document.kind == "axolotl" and document.value("adapter") != "qlora"
        yield Finding(
            "`load_in_4bit` and `load_in_8bit` are both true",
            (eight.label(""), four.label("", primary=False)),
            (
                "Axolotl loads in 8 bits for `lora`, without a message"
                if silent
                else "You can't use 8 bit and 4 bit precision at the same time",
            ),
            "keep the one that is meant",
            consequence="silent" if silent else "load" if document.kind == "model" else None,
        )


_TRL = TRL
_KEY = "bnb_4bit_compute_dtype"


_TOLD: Final = "unsloth"
"""The kind of file whose program sets the dtype itself: unsloth 2026.9.8 to 2026.10.9
models/llama.py, vision.py `from_pretrained`."""


@rule("warning", "slow", consumers=("trl", "transformers"), reads=QUANTISED)
def four_bits_computed_in_fp32(run: LintContext) -> Iterator[Finding]:
    """4-bit weights are dequantised to fp32 for matrix products."""
    base = quantised(run)
    if base is None or base.form not in ("nf4", "fp4") or base.document.kind == _TOLD:
        return
    if base.place.path != "load_in_4bit" or base.document.kind == "model":
        own = list(_of_transformers(base.place))
        yield from own
        if own or _computed(base.place) is not None:
            return
    compute = run.slot("quantization.compute")
    if compute is not None and compute.value == "fp32":
        place = run.place(compute)
        labels = (
            (place or base.place).label("fp32"),
            *([base.place.label("4 bits", primary=False)] if place else []),
        )
        yield _computed_finding(labels, ())
    elif compute is None and base.document.kind in _TRL and not _says_dtype(base.place):
        yield from _by_default(run, base.place)


def _computed(bits: Place) -> Place | None:
    """The compute dtype that BitsAndBytesConfig gets, from the key beside the bits."""
    block, dot, _ = bits.path.rpartition(".")
    return bits.document.get(f"{block}{dot}{_KEY}")


def _of_transformers(bits: Place) -> Iterator[Finding]:
    """Report fp32 in a block, or in a file with keys that only BitsAndBytesConfig has."""
    at = _computed(bits)
    block, dot, _ = bits.path.rpartition(".")
    if at is not None and at.value in ("float32", "float"):
        yield _computed_finding((at.label("fp32"), bits.label("4 bits", primary=False)), ())
    is_its_own = "." in bits.path or bits.document.get("bnb_4bit_use_double_quant") is not None
    is_hidden = f"{block}{dot}{_KEY}" in bits.document.unknown
    if at is None and not is_hidden and is_its_own and bits.path.endswith("load_in_4bit"):
        yield _computed_finding((bits.label("4 bits"),), (f"{_KEY} is float32 by default",))


def _says_dtype(place: Place) -> bool:
    return place.document.get("dtype") is not None or place.document.get("torch_dtype") is not None


def _by_default(run: LintContext, place: Place) -> Iterator[Finding]:
    """Report the default of TRL's scripts, which pass on `dtype`: float32 since 0.27."""
    if run.runs("trl>=0.27") is True:
        note = f"trl {run.release('trl').version} takes float32 where `dtype` is absent"
        yield _computed_finding((place.label("4 bits"),), (note,))


def _computed_finding(labels: tuple[Label, ...], notes: tuple[str, ...]) -> Finding:
    return Finding(
        "4-bit weights are expanded to fp32 for every product",
        labels,
        (*notes, "fp32 products do without the 16-bit tensor cores, and take twice the memory"),
        "set the compute dtype (TRL: `dtype`) to bfloat16, or float16 on older devices",
    )


_HALF = ("bf16", "fp16")
_QUANTISED_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}


@rule("warning", "silent", consumers=("transformers", "trl"), reads=QUANTISED)
def quantised_compute_differs(run: LintContext) -> Iterator[Finding]:
    """4-bit weights are dequantised to one 16-bit dtype, but the run computes in the other."""
    base = quantised(run)
    if base is None or base.form not in ("nf4", "fp4"):
        return
    computed, (expanded, first) = run.observed("precision.compute"), _expanded(run, base)
    second = run.place(computed)
    if computed is None or expanded == computed.value or not first or not second:
        return
    if expanded not in _HALF or computed.value not in _HALF:
        return
    yield Finding(
        f"4-bit weights are expanded to {expanded}, and the run computes in {computed.value}",
        (first.label(f"{expanded}"), second.label(f"{computed.value}", primary=False)),
        (
            (
                "bitsandbytes multiplies in its own compute dtype and casts back: every layer "
                "rounds to both, and fp16 keeps its overflow at 65504"
            ),
        ),
        "use one of the two",
    )


def _expanded(run: LintContext, base: Base) -> tuple[str | None, Place | None]:
    """The dtype of the products, by bitsandbytes' own key if it stands beside the bits."""
    block, dot, _ = base.place.path.rpartition(".")
    own = base.document.get(f"{block}{dot}{_KEY}")
    if own is not None and (dot or base.document.kind == "model"):
        return _QUANTISED_DTYPES.get(str(own.value)), own
    said = run.observed("quantization.compute")
    return (said.value if said is not None else None), run.place(said)


@rule("note", "silent", consumers=("transformers",), reads=QUANTISED)
def int8_products_in_fp16(run: LintContext) -> Iterator[Finding]:
    """LLM.int8() computes in fp16, whatever the run's dtype is."""
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
