"""A flavour that the model family of SimpleTuner does not have."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.diffusion.asked import configs, family, said
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

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


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        at, taken = said(document, "model_flavour"), _FLAVOURS.get(family(document))
        if at is None or taken is None or not isinstance(at.value, str | int | float):
            continue
        if str(at.value) not in taken and not _names_its_model(document):
            yield _finding(at, family(document), taken)


def _names_its_model(document: Document) -> bool:
    """Whether a model is named beside the flavour, which is not looked up then."""
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


RULE = Rule(
    name="flavour-of-another-family",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 2.2.1, 3.1.6 and 4.10.1 helpers/models/common.py `setup_model_flavour`: "
            "Model flavour ... not found in, where pretrained_model_name_or_path is None"
        ),
    ),
    check=_check,
)
