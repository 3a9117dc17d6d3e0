"""The prefetch bucket that the trainer computes is no whole number."""

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import said_in, stage_of

_SHARE: Final = Fraction(9, 10)


def _check(run: Run) -> Iterator[Finding]:
    is_old, is_strict = run.runs("transformers<4.45"), run.runs("deepspeed>=0.15")
    said = [each for each in said_in(run, ("stage3_prefetch_bucket_size",)) if each.value == "auto"]
    if is_old is not True or is_strict is False or run.deepspeed_reader == "plain":
        return
    width = _width(run)
    if stage_of(run).value != 3 or (width is not None and width % 10 == 0):
        return
    for place in said:
        value = "" if width is None else f", {float(_SHARE * width * width)}"
        yield Finding(
            f"the trainer fills stage3_prefetch_bucket_size in with a fraction{value}",
            (place.label("refused when it is filled in"),),
            (
                "0.9 of hidden_size squared is whole only where hidden_size is a multiple of ten",
                "DeepSpeed takes no fraction from 0.15.0 on; the trainer rounds from 4.45.0 on",
            ),
            "write a whole number, as 15099494 for a width of 4096, or use transformers 4.45",
            severity=None if is_strict else "warning",
        )


def _width(run: Run) -> int | None:
    """The model's hidden_size; None where the model is not known, or has several."""
    model = run.model
    if model is None or model.components:
        return None
    return model.architecture.hidden


RULE = Rule(
    name="automatic-bucket-not-whole",
    severity="error",
    consequence="init",
    consumers=("transformers<4.45",),
    sources=(
        (
            "transformers 4.40.2, 4.44.2 integrations/deepspeed.py `trainer_config_finalize`: "
            "0.9 * hidden_size * hidden_size; 4.45.0: int() of that"
        ),
        "deepspeed 0.15.0 runtime/zero/config.py by pydantic 2: prefetch_bucket_size is an int",
        "deepspeedai/DeepSpeed#6525; hiyouga/LlamaFactory#5252; OpenBMB/MiniCPM-V#694",
    ),
    check=_check,
)
