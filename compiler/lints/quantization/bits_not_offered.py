"""A number of bits that the quantisation method does not have."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_BITS: Final = {"bnb": (4, 8), "bitsandbytes": (4, 8), "hqq": (1, 2, 3, 4, 5, 6, 8), "eetq": (8,)}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        method = document.get("quantization_method")
        word = "bnb" if method is None else method.value
        bits = document.get("quantization_bit")
        if bits is not None and isinstance(bits.value, int) and word in _BITS:
            yield from _finding(bits, word, _BITS[word])
        exported = document.get("export_quantization_bit")
        if exported is not None and isinstance(exported.value, int):
            yield from _finding(exported, "GPTQ", (2, 3, 4, 8))
        for key in ("ref_model_quantization_bit", "reward_model_quantization_bit"):
            other = document.get(key)
            if other is not None and isinstance(other.value, int):
                yield from _finding(other, "bitsandbytes", (4, 8), "parse")


def _finding(
    bits: Place, method: str, offered: tuple[int, ...], when: Consequence | None = None
) -> Iterator[Finding]:
    if bits.value in offered:
        return
    words = joined([str(each) for each in offered], "or")
    yield Finding(
        f"{bits.path} {bits.value} with {method}, which has {words}",
        (bits.label(f"not {words}"),),
        (),
        f"use {words}",
        consequence=when,
    )


RULE = Rule(
    name="bits-not-offered",
    severity="error",
    consequence="load",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 model/model_utils/quantization.py "
            "`configure_quantization`: Bitsandbytes only accepts 4-bit or 8-bit, HQQ "
            "1/2/3/4/5/6/8, "
            "EETQ 8, AutoGPTQ 2/3/4/8; hparams/finetuning_args.py: We only accept 4-bit or 8-bit"
        ),
    ),
    check=_check,
)
