"""FlashAttention on devices that it has no kernels for."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.hardware.capability import below, with_capability
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PATCHED: Final = re.compile(r"(^|/)(llava|fastchat)/train/train_mem\.py$")
"""Scripts that put FlashAttention in themselves."""
_MECHANISM: Final = re.compile(r"flash-attn(?:-([234]))?(?:-varlen)?(?:-hub)?\Z")
_HOPPER: Final = (9, 0)
_ASKS: Final = "simpletuner>=4.1"
_LEAST: Final = {"flash_attention_2": (8, 0), "flash_attention_3": (9, 0)}


def _check(run: Run) -> Iterator[Finding]:
    yield from _xformers(run)
    found = _asked(run)
    if found is None:
        return
    word, place = found
    device = below(run, *_LEAST[word])
    if device is None:
        return
    least = ".".join(map(str, _LEAST[word]))
    is_word = place.value == word
    yield Finding(
        f"{with_capability(device)} has no kernels of {word}",
        (place.label(f"needs {least}"),),
        ("the first forward pass ends in `FlashAttention only supports Ampere GPUs or newer`",),
        "use sdpa: torch picks what the device has"
        if place.path != "script"
        else "start train.py, or train_xformers.py, of the same folder",
        Fix((place.replaced("sdpa"),), "safe") if is_word else None,
    )


def _xformers(run: Run) -> Iterator[Finding]:
    """SimpleTuner asks the device itself, and takes no xformers from Hopper on."""
    device = run.environment.weakest
    newest = (device.compute_capability or (0, 0)) if device is not None else (0, 0)
    for at in run.each("simpletuner", "attention_mechanism"):
        if device is None or at.value != "xformers" or newest < _HOPPER:
            continue
        if run.runs(_ASKS) is not False:
            yield Finding(
                f"SimpleTuner takes no xformers on {with_capability(device)}",
                (at.label("refused"),),
                ("xformers is not supported on GPUs with compute capability 9.0+",),
                "use diffusers: torch picks what the device has",
                Fix((at.replaced("diffusers"),), "safe"),
                consequence="parse",
            )


def _named(value: object) -> str | None:
    """The implementation that a word of SimpleTuner's `attention_mechanism` asks for."""
    found = _MECHANISM.match(str(value))
    return None if found is None else f"flash_attention_{found[1] or 2}"


def _asked(run: Run) -> tuple[str, Place] | None:
    for each in run.each("simpletuner", "attention_mechanism"):
        word = _named(each.value)
        if word in _LEAST:
            return str(word), each
    observed = run.observed("attention.implementation")
    place = run.place(observed)
    if observed is not None and place is not None and observed.value in _LEAST:
        return str(observed.value), place
    for kind in ("model", *TRL, "hf", "axolotl"):
        for key in ("attn_implementation", "model_init_kwargs.attn_implementation"):
            for each in run.each(kind, key):
                if isinstance(each.value, str) and each.value in _LEAST:
                    return each.value, each
    started = (each.get("script") for each in run.of("launch"))
    patched = (at for at in started if at is not None and _PATCHED.search(_first(at)))
    return next((("flash_attention_2", at) for at in patched), None)


def _first(at: Place) -> str:
    words = at.value if isinstance(at.value, list) else [at.value]
    return str(words[0]) if words else ""


RULE = Rule(
    name="flash-attention-without-hardware",
    severity="error",
    consequence="step",
    consumers=("transformers",),
    sources=(
        (
            "Dao-AILab/flash-attention 2.8 csrc/flash_attn/flash_api.cpp `mha_fwd`: FlashAttention "
            "only supports Ampere GPUs or newer; README: FlashAttention-3 needs H100 or H800"
        ),
        (
            "haotian-liu/LLaVA c121f04 llava/train/train_mem.py: attn_implementation="
            "'flash_attention_2'; lm-sys/FastChat 0e6d3e4 fastchat/train/train_mem.py: "
            "replace_llama_attn_with_flash_attn; haotian-liu/LLaVA#641"
        ),
        (
            "simpletuner 4.10.1 helpers/training/attention_backend.py: flash-attn-3 is _flash_3; "
            "`xformers_compute_capability_error`: major >= 9"
        ),
        "unslothai/unsloth#2838, huggingface/trl#1230",
    ),
    check=_check,
)
