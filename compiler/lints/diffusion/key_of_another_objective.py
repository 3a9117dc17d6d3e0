"""A key of noise prediction for a flow model, or of flow matching for the other kind."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.diffusion.asked import (
    EPSILON,
    FLOW,
    amount,
    configs,
    family,
    is_on,
    said,
    word,
)
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OF_NOISE: Final = ("snr_gamma", "soft_min_snr_gamma", "rescale_betas_zero_snr", "use_soft_min_snr")
_OF_FLOW: Final = ("flow_schedule_shift", "flow_schedule_auto_shift", "flow_sigmoid_scale")
_OF_FLUX: Final = ("flux_guidance_value", "flux_guidance_mode", "flux_fast_schedule")


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        name = family(document)
        objective = word(document, "prediction_type")
        if name in FLOW:
            yield from _of(document, _OF_NOISE, f"{name} is trained by flow matching")
        elif name in EPSILON and objective not in ("flow_matching", "flow-matching"):
            yield from _of(document, (*_OF_FLOW, *_OF_FLUX), f"{name} predicts noise")


def _of(document: Document, keys: tuple[str, ...], why: str) -> Iterator[Finding]:
    for key in keys:
        at = said(document, key)
        if at is None or not (is_on(at) or amount(at) or isinstance(at.value, str)):
            continue
        if str(at.value).lower() in ("false", "0"):
            continue
        yield Finding(
            f"{key} does nothing here: {why}",
            (at.label("not used"),),
            (),
            "remove it",
            Fix((at.removed(),), "safe") if document.format == "json" else None,
        )


RULE = Rule(
    name="key-of-another-objective",
    severity="warning",
    consequence="silent",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/models/common.py `ModelFoundation.loss`: "
            "snr_gamma only below EPSILON and V_PREDICTION; helpers/models/*/model.py "
            "`PREDICTION_TYPE`"
        ),
    ),
    check=_check,
)
