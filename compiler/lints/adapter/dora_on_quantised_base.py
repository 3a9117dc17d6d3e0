"""DoRA over a quantised base whose layers have no form of it."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.adapter.lora import Lora, is_true, loras
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.quantization.base import quantised, stored_form
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BITSANDBYTES: Final = "peft<0.10"
_PACKED: Final = ("gptq", "awq", "aqlm")
"""Forms by a checkpoint's name for which no release has DoRA."""


def _check(run: Run) -> Iterator[Finding]:
    base, form = quantised(run), stored_form(run)
    for lora in loras(run):
        dora = lora.place("use_dora")
        if dora is None or not is_true(dora.value):
            continue
        if base is not None and run.runs(_BITSANDBYTES) is True:
            yield _finding(lora, dora, (base.form, base.place), "or PEFT 0.10.0 and later")
        elif form is not None and form[0] in _PACKED:
            yield _finding(lora, dora, form, "or a base of bitsandbytes")


def _finding(lora: Lora, dora: Place, base: tuple[str, Place], otherwise: str) -> Finding:
    form, stored = base
    return Finding(
        f"{lora.key('use_dora')} over a base in {form}",
        (dora.label("refused"), stored.label("quantised", primary=False)),
        ("its layers raise: does not support DoRA yet, please set it to False",),
        f"use plain LoRA, {otherwise}",
    )


RULE = Rule(
    name="dora-on-quantised-base",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.9.0 tuners/lora/bnb.py `Linear8bitLt.__init__`, `Linear4bit.__init__`: does "
            "not support DoRA yet; gone in 0.10.0; the same in gptq.py, awq.py and aqlm.py of "
            "0.9.0 to 0.21.2"
        ),
    ),
    check=_check,
)
