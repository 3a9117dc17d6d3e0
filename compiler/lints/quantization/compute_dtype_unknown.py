"""4 bits are to be computed, or held, in a dtype that torch does not have: `auto`, `bf16`."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.preference.asked import is_started_by_trl
from tunec.compiler.lints.quantization.base import blocks
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_COMPUTE: Final = "bnb_4bit_compute_dtype"
_STORAGE: Final = "bnb_4bit_quant_storage"
_DTYPES: Final = (
    *("bfloat16", "float16", "float32", "float64", "half", "float", "double"),
    *("int8", "uint8"),
)
"""Attributes of torch that are dtypes; the storage takes the long names alone."""
_HELD: Final = ("float16", "float32", "int8", "uint8", "float64", "bfloat16")
_SHORT: Final = {
    **dict.fromkeys(("bf16", "torch.bfloat16", "auto"), "bfloat16"),
    **dict.fromkeys(("fp16", "torch.float16"), "float16"),
    **dict.fromkeys(("fp32", "torch.float32"), "float32"),
}


def _check(run: Run) -> Iterator[Finding]:
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
        if isinstance(at.value, str) and at.value not in (_HELD if held else _DTYPES):
            yield _unknown(at, at.value, held=held)


def _named(run: Run) -> Iterator[Place]:
    """Both dtypes in a file of what a model is loaded with, in a block, and in Axolotl's own."""
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


RULE = Rule(
    name="compute-dtype-unknown",
    severity="error",
    consequence="load",
    consumers=("trl", "transformers", "axolotl"),
    sources=(
        (
            "trl 0.8.6 to 1.16.0 trainer/utils.py `get_quantization_config`: "
            "bnb_4bit_compute_dtype=model_args.dtype (torch_dtype until 0.24)"
        ),
        (
            "transformers 4.40.2 to 5.23.0 utils/quantization_config.py "
            "`BitsAndBytesConfig.__init__`: getattr(torch, bnb_4bit_compute_dtype); "
            "`bnb_4bit_quant_storage` must be a valid string; run"
        ),
        (
            "axolotl 0.8.1 to 0.19.0 loaders/model.py `_set_quantization_config`: "
            "bnb_config.update(self.cfg.bnb_config_kwargs)"
        ),
    ),
    check=_check,
)
