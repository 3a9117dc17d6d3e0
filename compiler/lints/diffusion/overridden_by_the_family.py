"""A setting that SimpleTuner's code of this model family puts its own value in place of."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.diffusion.asked import amount, configs, family, said, word
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_ALIGNED: Final[Mapping[str, int]] = {
    **dict.fromkeys(("auraflow", "flux", "hidream", "kolors", "ltxvideo", "lumina2"), 64),
    **dict.fromkeys(("pixart", "pixart_sigma", "sana", "sd1x", "sd2x", "sd3", "sdxl"), 64),
    **dict.fromkeys(("cosmos", "cosmos2image", "flux2"), 16),
    **dict.fromkeys(("deepfloyd", "qwen_image"), 32),
}
"""simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/models/*/model.py `check_user_config`, as those that
have the family agree; of wan it depends on the flavour."""
_TOKENS: Final = frozenset(
    {
        *("flux", "kolors", "ltxvideo", "pixart", "pixart_sigma", "sana", "sd1x", "sd2x", "sdxl"),
        "wan",
    }
)
_FLOW: Final = frozenset({"flux", "ltxvideo", "lumina2", "wan"})
_OWN_VAE: Final = frozenset({"cosmos", "cosmos2image", "deepfloyd", "sana", "sd3"})
_KNOWING: Final = frozenset({"qwen_image"})
"""Whose code asks for `i_know_what_i_am_doing` before it overrides."""


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        for at, why, instead in _overridden(document, family(document)):
            yield Finding(
                f"{at.path} {at.value} is not used: {why}",
                (at.label("overridden"),),
                ("a line of the log says so",),
                instead,
            )


def _overridden(document: Document, name: str) -> Iterator[tuple[Place, str, str]]:
    wide, size = said(document, "aspect_bucket_alignment"), _ALIGNED.get(name)
    is_free = name in _KNOWING and said(document, "i_know_what_i_am_doing") is not None
    if wide is not None and size is not None and amount(wide) not in (None, size) and not is_free:
        yield wide, f"{name} takes {size}", f"write {size}, or remove it"
    tokens = said(document, "tokenizer_max_length")
    if tokens is not None and name in _TOKENS:
        yield tokens, f"{name} has a length of its own", "remove it"
    aim = said(document, "prediction_type")
    is_flow = word(document, "prediction_type").startswith("flow")
    if aim is not None and name in _FLOW and not is_flow:
        yield aim, f"{name} is trained by flow matching", "remove it"
    vae = said(document, "pretrained_vae_model_name_or_path")
    if vae is not None and name in _OWN_VAE and "sdxl" not in str(vae.value):
        yield vae, f"{name} takes its own VAE", "remove it"
    kernel = said(document, "attention_mechanism")
    if kernel is not None and name == "sana" and "sageattention" in str(kernel.value):
        yield kernel, "sana is not supported with SageAttention", "write diffusers"


RULE = Rule(
    name="overridden-by-the-family",
    severity="warning",
    consequence="silent",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/models/*/model.py `check_user_config`: "
            "requires an alignment value of; --tokenizer_max_length is ignored; does not support "
            "prediction type; pretrained_vae_model_name_or_path = None; Disabling SageAttention"
        ),
    ),
    check=_check,
)
