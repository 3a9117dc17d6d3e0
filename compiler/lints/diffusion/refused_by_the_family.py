"""A setting that SimpleTuner's code of this model family refuses."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.asked import configs, family, is_lora, is_on, said, word
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.quantization.base import processes
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_WITHOUT_FP8_QUANTO: Final = frozenset(
    {
        *("auraflow", "cosmos", "cosmos2image", "cosmos3", "deepfloyd", "hidream", "kolors"),
        *("ltxvideo", "pixart", "pixart_sigma", "sana", "sanavideo", "sd1x", "sd2x", "sd3"),
        *("sdxl", "wan", "wan_s2v"),
    }
)
"""simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/models/*/model.py `check_user_config`."""
_KNOWING: Final = "i_know_what_i_am_doing"


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        if not _is_replaced(run, document):
            yield from _fp8(document)
        yield from _schnell(document)


def _is_replaced(run: Run, document: Document) -> bool:
    """Whether `fp8-quanto-replaced` is true of it: int8-quanto is put in its place before."""
    is_own = word(document, "lora_type", "standard") == "standard" and is_lora(document)
    return is_own and (processes(run) or 1) > 1


def _fp8(document: Document) -> Iterator[Finding]:
    at, name = said(document, "base_model_precision"), family(document)
    is_asked = word(document, "base_model_precision") == "fp8-quanto"
    if at is not None and is_asked and name in _WITHOUT_FP8_QUANTO:
        yield Finding(
            f"{name} is not trained over a base of fp8-quanto",
            (at.label("refused"),),
            ("does not support fp8-quanto: fp8-torchao or int8 are taken",),
            "write int8-quanto, or fp8-torchao",
        )


def _schnell(document: Document) -> Iterator[Finding]:
    """Its few steps of time are those of a schedule of their own."""
    at, fast = said(document, "model_flavour"), said(document, "flux_fast_schedule")
    if at is None or family(document) != "flux" or word(document, "model_flavour") != "schnell":
        return
    spelt = {each for flag in ("flux_fast_schedule", _KNOWING) for each in (flag, f"--{flag}")}
    if is_on(fast) or is_on(said(document, _KNOWING)) or spelt & document.unknown:
        return
    yield Finding(
        "flux schnell without flux_fast_schedule",
        (at.label("refused"), *([fast.label("", primary=False)] if fast is not None else [])),
        ("Schnell requires --flux_fast_schedule",),
        "write flux_fast_schedule: true",
    )


RULE = Rule(
    name="refused-by-the-family",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/models/*/model.py `check_user_config`: "
            "does not support fp8-quanto; Schnell requires --flux_fast_schedule (sys.exit)"
        ),
    ),
    check=_check,
)
