"""A key of noise prediction for a flow model, or of flow matching for the other kind."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import quoted
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

_OF_NOISE: Final = (
    *("snr_gamma", "soft_min_snr_gamma", "rescale_betas_zero_snr", "use_soft_min_snr"),
    *("offset_noise", "timestep_bias_strategy"),
)
_OF_FLOW: Final = ("flow_schedule_shift", "flow_schedule_auto_shift", "flow_sigmoid_scale")
_OF_FLUX: Final = ("flux_fast_schedule",)
_GUIDED: Final = ("flux", "flux2", "chroma")
_OF_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("flux_guidance_value", "flux_guidance_mode"), _GUIDED),
    **dict.fromkeys(("flux_guidance_min", "flux_guidance_max"), _GUIDED),
    "flux_lora_target": ("flux", "chroma"),
    **dict.fromkeys(("sd3_clip_uncond_behaviour", "sd3_t5_uncond_behaviour"), ("sd3",)),
    **dict.fromkeys(("ltx_i2v_prob", "ltx_partial_noise_fraction"), ("ltxvideo",)),
    "ltx_protect_first_frame": ("ltxvideo",),
    **dict.fromkeys(
        ("hidream_use_load_balancing_loss", "hidream_load_balancing_loss_weight"), ("hidream",)
    ),
    "sana_complex_human_instruction": ("sana", "sanavideo"),
}
"""simpletuner 3.1.6 and 4.10.1 helpers/models/*/model.py: whose code reads a flag."""


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        name = family(document)
        objective = word(document, "prediction_type")
        if name in FLOW:
            yield from _of(document, _OF_NOISE, f"{name} is trained by flow matching")
        elif name in EPSILON and objective not in ("flow_matching", "flow-matching"):
            yield from _of(document, (*_OF_FLOW, *_OF_FLUX), f"{name} predicts noise")
        for key, families in _OF_FAMILIES.items() if name else ():
            if name not in families:
                yield from _of(document, (key,), f"{quoted(families, 'and')} alone read it")


def _of(document: Document, keys: tuple[str, ...], why: str) -> Iterator[Finding]:
    for key in keys:
        at = said(document, key)
        if at is None or not (is_on(at) or amount(at) or isinstance(at.value, str)):
            continue
        if str(at.value).lower() in ("false", "0", "none"):
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
