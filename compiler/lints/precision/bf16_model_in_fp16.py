"""A model that was trained in bf16 is fine-tuned in fp16."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_T5: Final = re.compile(
    r"((google|google-t5|bigscience)/)?((flan-|m|long-|u)?t5\b.*|T0(_?3B|pp?)?)"
)
"""T5 and what was trained on from it, whose files hold fp32 and whose activations were bf16."""
_OVERFLOWS: Final = re.compile(r"(^|[/_-])gemma-?[234]n?\b", re.IGNORECASE)
"""Models whose activations are seen to leave fp16, so that hardware without bf16 is no way out."""


def _check(run: Run) -> Iterator[Finding]:
    yield from _of_examples(run)
    computed = run.observed("precision.compute")
    place, model = run.place(computed), run.model
    if computed is None or computed.value != "fp16" or place is None:
        return
    path = (run.model_name or "") if model is None else model.path
    if model is not None and model.stored_dtype != "bf16":
        return
    if model is not None or _T5.fullmatch(path):
        asked = (each for each in run.each("trainer", "fp16") if str(each.value).lower() == "true")
        yield _finding(run, path, next(asked, place))


def _of_examples(run: Run) -> Iterator[Finding]:
    """Scripts of diffusers, which name their model and precision as flags of their own."""
    for document in run.of("diffusers"):
        place, named = (
            document.get(key) for key in ("mixed_precision", "pretrained_model_name_or_path")
        )
        if (
            place is None
            or place.value != "fp16"
            or named is None
            or not isinstance(named.value, str)
        ):
            continue
        model = run.environment.model or run.resolve_model(named.value)
        if model is not None and model.stored_dtype == "bf16":
            yield _finding(run, model.path, place)


def _finding(run: Run, path: str, place: Place) -> Finding:
    device = run.environment.weakest
    cannot = device is not None and not device.supports("bf16")
    is_seen = _T5.fullmatch(path) is not None or _OVERFLOWS.search(path) is not None
    return Finding(
        f"{path} was trained in bf16, and the run computes in fp16",
        (place.label("fp16"),),
        (
            (
                "bf16 reaches 3.4e38, fp16 65504: activations that were learnt in bf16 may "
                "overflow, and the loss turns nan"
            ),
            *((f"{device.title} has no bf16 arithmetic",) if device and cannot else ()),
        ),
        "watch the loss scale; fp32 for the layers that overflow" if cannot else "use bf16",
        severity="note" if cannot and not is_seen else None,
    )


RULE = Rule(
    name="bf16-model-in-fp16",
    severity="warning",
    consequence="step",
    consumers=("torch",),
    sources=(
        (
            "huggingface/transformers#5651 (T5: 66246 in a feed-forward layer, beyond fp16), "
            "#9295; google-research/text-to-text-transfer-transformer#539 (bf16 activations)"
        ),
        "huggingface/transformers#36822, #37226 (Gemma 3), unslothai/unsloth#5092 (Gemma 4)",
        "torch 2.13.0 finfo: float16 max 65504, bfloat16 max 3.39e38",
    ),
    check=_check,
)
