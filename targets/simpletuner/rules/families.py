"""Settings that a model family of SimpleTuner refuses or overrides."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.diffusion import (
    EPSILON,
    FLOW,
    amount,
    configs,
    family,
    flags_read,
    is_lora,
    is_on,
    said,
    word,
)
from tunec.compiler.lints.facts.precision import processes
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.simpletuner.families import SANA_ENDS

_PATH: Final = "pretrained_model_name_or_path"
_WAN: Final = (
    *("t2v-480p-1.3b-2.1", "t2v-480p-14b-2.1", "i2v-14b-2.1", "i2v-14b-2.1-720p"),
    *("i2v-14b-2.2-high", "i2v-14b-2.2-low", "animegen-t2v-high", "animegen-t2v-low"),
    *("flf2v-14b-2.1", "vace-1.3b-2.1", "vace-14b-2.1", "ti2v-5b-2.2"),
)
_SANA: Final = (
    *("sana1.5-4.8b-1024", "sana1.5-1.6b-1024", "sana1.0-1.6b-2048", "sana1.0-1.6b-1024"),
    *("sana1.0-600m-1024", "sana1.0-600m-512"),
)
_PIXART: Final = (
    *("900M-1024-v0.6", "900M-1024-v0.7-stage1", "900M-1024-v0.7-stage2"),
    *("600M-512", "600M-1024", "600M-2048"),
)
_FLAVOURS: Final[Mapping[str, tuple[str, ...]]] = {
    "auraflow": ("pony", "v0.3", "v0.2", "v0.1"),
    "chroma": ("base", "hd", "flash"),
    **dict.fromkeys(("cosmos2image", "cosmos"), ("2b", "14b")),
    "flux": ("dev", "krea", "schnell", "kontext", "fluxbooru", "libreflux"),
    "flux2": ("dev", "klein-4b", "klein-9b"),
    "hidream": ("dev", "full", "fast"),
    "kolors": ("1.0",),
    "ltxvideo": ("0.9.5", "0.9.0"),
    "lumina2": ("2.0", "neta-lumina"),
    "omnigen": ("v1",),
    **dict.fromkeys(("pixart_sigma", "pixart"), _PIXART),
    "qwen_image": ("v1.0", "v2.0", "v2.1", "edit-v1", "edit-v2", "edit-v2+", "edit-v3"),
    "sana": _SANA,
    "sd1x": ("1.5", "1.4", "dreamshaper", "realvis"),
    "sd2x": ("digitaldiffusion", "pseudoflex-v2", "pseudojourney", "2.1", "2.0"),
    "sd3": ("medium", "large"),
    "sdxl": ("base-1.0", "refiner-1.0", "base-0.9", "refiner-0.9"),
    "wan": _WAN,
    **dict.fromkeys(
        ("z_image", "z-image"), ("base", "turbo", "turbo-ostris-v2", "ostris-de-turbo")
    ),
}
"""simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/models/*/model.py `HUGGINGFACE_PATHS`, together."""


@rule("error", "init", consumers=("simpletuner",), reads=flags_read("model_flavour"))
def flavour_of_another_family(run: LintContext) -> Iterator[Finding]:
    """A flavour that the model family of SimpleTuner does not have."""
    for document in configs(run):
        at, taken = said(document, "model_flavour"), _FLAVOURS.get(family(document))
        if at is None or taken is None or not isinstance(at.value, str | int | float):
            continue
        if str(at.value) not in taken and not _names_its_model(document):
            yield _finding(at, family(document), taken)


def _names_its_model(document: Document) -> bool:
    """Whether a model is given beside the flavour, which is then not read."""
    spelt = {_PATH, f"--{_PATH}", "MODEL_NAME", "TRAINER_EXTRA_ARGS"}
    return said(document, _PATH) is not None or bool(spelt & document.unknown)


def _finding(at: Place, name: str, taken: tuple[str, ...]) -> Finding:
    near = nearest(str(at.value), frozenset(taken))[:1]
    return Finding(
        f"{name} has no flavour {at.value}",
        (at.label("not found"),),
        (f"it has {quoted(taken)}",),
        f"did you mean {quoted(near)}?" if near else "write one of these",
    )


_WITHOUT_FP8_QUANTO: Final = frozenset(
    {
        *("auraflow", "cosmos", "cosmos2image", "cosmos3", "deepfloyd", "hidream", "kolors"),
        *("ltxvideo", "pixart", "pixart_sigma", "sana", "sanavideo", "sd1x", "sd2x", "sd3"),
        *("sdxl", "wan", "wan_s2v"),
    }
)
"""simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/models/*/model.py `check_user_config`."""
_REFUSED_KNOWING: Final = "i_know_what_i_am_doing"


@rule(
    "error",
    "init",
    consumers=("simpletuner",),
    reads=flags_read("base_model_precision", "model_flavour", "model_family"),
)
def refused_by_the_family(run: LintContext) -> Iterator[Finding]:
    """A setting that SimpleTuner's code of this model family refuses."""
    for document in configs(run):
        if not _is_replaced(run, document):
            yield from _fp8(document)
        yield from _schnell(document)
        yield from _of_release(run, document)


def _is_replaced(run: LintContext, document: Document) -> bool:
    """Whether int8-quanto replaces the value first (`fp8-quanto-replaced`)."""
    is_own = word(document, "lora_type", "standard") == "standard" and is_lora(document)
    return is_own and (processes(run) or 1) > 1


def _fp8(document: Document) -> Iterator[Finding]:
    at, name = said(document, "base_model_precision"), family(document)
    is_asked = word(document, "base_model_precision") == "fp8-quanto"
    if at is not None and is_asked and name in _WITHOUT_FP8_QUANTO:
        yield Finding(
            f"SimpleTuner refuses fp8-quanto as the precision of a base of {name}",
            (at.label("refused"),),
            ("the family checks it before anything is loaded, and names fp8-torchao and int8",),
            "write int8-quanto, or fp8-torchao",
        )


def _schnell(document: Document) -> Iterator[Finding]:
    """FLUX schnell needs the schedule for its few timesteps."""
    at, fast = said(document, "model_flavour"), said(document, "flux_fast_schedule")
    if at is None or family(document) != "flux" or word(document, "model_flavour") != "schnell":
        return
    spelt = {
        each for flag in ("flux_fast_schedule", _REFUSED_KNOWING) for each in (flag, f"--{flag}")
    }
    if is_on(fast) or is_on(said(document, _REFUSED_KNOWING)) or spelt & document.unknown:
        return
    yield Finding(
        "flux schnell needs flux_fast_schedule",
        (at.label("refused"), *also(fast)),
        ("Schnell requires --flux_fast_schedule",),
        "write flux_fast_schedule: true",
    )


def _of_release(run: LintContext, document: Document) -> Iterator[Finding]:
    """What the family's code cannot do in a release, whatever its flags are."""
    at, name = said(document, "model_family"), family(document)
    if at is None:
        return
    if name == "sana" and run.runs(f"simpletuner>={SANA_ENDS}") is True:
        yield Finding(
            "SimpleTuner cannot train Sana in this release",
            (at.label("ends with an error"),),
            ("it encodes captions with a pipeline that it gives no scheduler",),
            "install simpletuner 4.3.4",
        )
    is_own = word(document, "lora_type", "standard") == "standard" and is_lora(document)
    if name in _UNSAVED and is_own and not is_on(said(document, "controlnet")):
        yield Finding(
            "SimpleTuner saves no LoRA weights of PixArt",
            (at.label("its files hold no weights"),),
            ("checkpoints are written without them, and saving ends the run with an error",),
            "train the model in full, or write lora_type: lycoris",
            consequence="save",
        )


_UNSAVED: Final = frozenset({"pixart", "pixart_sigma"})
"""simpletuner 3.1.6 and 4.10.1 helpers/models/pixart/model.py `save_lora_weights` hands none of its
keywords on."""

_ALIGNED: Final[Mapping[str, int]] = {
    **dict.fromkeys(("auraflow", "flux", "hidream", "kolors", "ltxvideo", "lumina2"), 64),
    **dict.fromkeys(("pixart", "pixart_sigma", "sana", "sd1x", "sd2x", "sd3", "sdxl"), 64),
    **dict.fromkeys(("cosmos", "cosmos2image", "flux2"), 16),
    **dict.fromkeys(("deepfloyd", "qwen_image"), 32),
}
"""simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/models/*/model.py `check_user_config`, equal in all
that have the family; for wan it depends on the flavour."""
_TOKENS: Final = frozenset(
    {
        *("flux", "kolors", "ltxvideo", "pixart", "pixart_sigma", "sana", "sd1x", "sd2x", "sdxl"),
        "wan",
    }
)
_FLOW: Final = frozenset({"flux", "ltxvideo", "lumina2", "wan"})
_OWN_VAE: Final = frozenset({"cosmos", "cosmos2image", "deepfloyd", "sana", "sd3"})
_OVERRIDDEN_KNOWING: Final = frozenset({"qwen_image"})
"""Families whose code overrides only with `i_know_what_i_am_doing`."""


@rule(
    "warning",
    "silent",
    consumers=("simpletuner",),
    reads=flags_read(
        *("aspect_bucket_alignment", "tokenizer_max_length", "prediction_type"),
        *("pretrained_vae_model_name_or_path", "attention_mechanism"),
    ),
)
def overridden_by_the_family(run: LintContext) -> Iterator[Finding]:
    """A setting that the code of this model family overrides."""
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
    is_free = name in _OVERRIDDEN_KNOWING and said(document, "i_know_what_i_am_doing") is not None
    if wide is not None and size is not None and amount(wide) not in (None, size) and not is_free:
        yield wide, f"{name} takes {size}", f"write {size}, or remove it"
    tokens = said(document, "tokenizer_max_length")
    if tokens is not None and name in _TOKENS:
        yield tokens, f"{name} has its own length", "remove it"
    aim = said(document, "prediction_type")
    is_flow = word(document, "prediction_type").startswith("flow")
    if aim is not None and name in _FLOW and not is_flow:
        yield aim, f"{name} is trained by flow matching", "remove it"
    vae = said(document, "pretrained_vae_model_name_or_path")
    if vae is not None and name in _OWN_VAE and "sdxl" not in str(vae.value):
        yield vae, f"{name} uses its own VAE", "remove it"
    kernel = said(document, "attention_mechanism")
    if kernel is not None and name == "sana" and "sageattention" in str(kernel.value):
        yield kernel, "sana is not supported with SageAttention", "write diffusers"


_REFUSED: Final = "simpletuner<3.2"


@rule("error", "init", consumers=("simpletuner",), reads=flags_read("flow_schedule_auto_shift"))
def flow_shift_given_twice(run: LintContext) -> Iterator[Finding]:
    """The timestep shift of flow matching is given, although it is to be computed."""
    for document in configs(run):
        auto, shift = (
            said(document, "flow_schedule_auto_shift"),
            said(document, "flow_schedule_shift"),
        )
        if auto is None or not is_on(auto):
            continue
        amount_ = amount(shift) if shift is not None else 3.0
        if amount_ is None or amount_ <= 0:
            continue
        if run.runs(_REFUSED) is not True:
            if shift is not None:
                yield _unread(shift, auto)
            continue
        yield Finding(
            f"SimpleTuner refuses flow_schedule_auto_shift beside flow_schedule_shift {amount_:g}",
            (auto.label("refused"), *also(shift)),
            ("each sets the shift; flow_schedule_shift is 3 by default",),
            "write flow_schedule_shift: 0",
            Fix((shift.replaced(0),), "safe") if shift is not None else None,
        )


def _unread(shift: Place, auto: Place) -> Finding:
    return Finding(
        f"flow_schedule_shift {shift.value} does nothing beside flow_schedule_auto_shift",
        (shift.label("set to 0"), auto.label("", primary=False)),
        ("the shift is found from the size of each sample; up to 3.1 the pair is refused",),
        "write flow_schedule_shift: 0, or remove flow_schedule_auto_shift",
        Fix((shift.replaced(0),), "safe"),
        severity="warning",
        consequence="silent",
    )


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
"""simpletuner 3.1.6 and 4.10.1 helpers/models/*/model.py: the families whose code reads a flag."""


@rule(
    "warning",
    "silent",
    consumers=("simpletuner",),
    reads=flags_read(*_OF_NOISE, *_OF_FLOW, *_OF_FLUX, *_OF_FAMILIES),
)
def key_of_another_objective(run: LintContext) -> Iterator[Finding]:
    """A key of noise prediction for a flow model, or of flow matching for the other kind."""
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
