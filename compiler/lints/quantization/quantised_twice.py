"""A base that is stored quantised is to be quantised again."""

from collections.abc import Iterator

from tunec.compiler.lints.quantization.base import quantised, stored_form
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SAME = {"nf4": "bnb-4bit", "fp4": "bnb-4bit", "int8": "bnb-8bit"}
_BY_BITSANDBYTES = ("bnb-4bit", "bnb-8bit")


def _check(run: Run) -> Iterator[Finding]:
    base, stored = quantised(run), stored_form(run)
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


RULE = Rule(
    name="quantised-twice",
    severity="error",
    consequence="load",
    consumers=("transformers", "llamafactory"),
    sources=(
        (
            "transformers 5.23.0 quantizers/auto.py `AutoHfQuantizer.merge_quantization_configs`: "
            "ValueError for another class, a warning for the same"
        ),
        (
            "llamafactory 0.9.1 to 0.9.5 model/model_utils/quantization.py: `quantization_bit` "
            "will not affect on the PTQ-quantized models"
        ),
    ),
    check=_check,
)
