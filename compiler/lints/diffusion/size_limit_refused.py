"""A limit of sizes below or above what SimpleTuner takes in its unit."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.diffusion.asked import amount, configs, is_on, said, word
from tunec.compiler.lints.diffusion.megapixels_taken_for_pixels import MOST_MEGAPIXELS
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_LIMITS: Final = ("maximum_image_size", "target_downsample_size")
_LEAST_PIXELS: Final = 512
_UNIT_PIXELS: Final = 64
"""Below it the size is one in megapixels, of which `megapixels-taken-for-pixels` speaks."""
_MOST_OF_RUN: Final = 5
_SWITCH: Final = "SIMPLETUNER_MAXIMUM_IMAGE_SIZE_OVERRIDE"


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        kind = word(document, "resolution_type", "pixel_area")
        if not word(document, "model_type").startswith("deepfloyd"):
            places = [said(document, each) for each in _LIMITS]
            yield from _of(kind, places, _MOST_OF_RUN, "parse")
    for document in run.of("simpletuner-data"):
        for name in document.found:
            if "." not in name:
                kind = str(document.value(f"{name}.resolution_type", ""))
                places = [document.get(f"{name}.{each}") for each in _LIMITS]
                yield from _of(kind, places, int(MOST_MEGAPIXELS), "init")


def _of(
    kind: str, places: list[Place | None], most: int, consequence: Consequence
) -> Iterator[Finding]:
    for at in places:
        size = amount(at)
        if at is None or size is None or size <= 0 or is_on(at.document.get(_SWITCH)):
            continue
        if kind == "pixel" and _UNIT_PIXELS <= size < _LEAST_PIXELS:
            yield _finding(at, f"is below {_LEAST_PIXELS} pixels", _LEAST_PIXELS, consequence)
        elif kind == "area" and most < size <= MOST_MEGAPIXELS:
            yield _finding(at, f"is above {most} megapixels", most, consequence)


def _finding(at: Place, what: str, bound: int, consequence: Consequence) -> Finding:
    name = at.path.rpartition(".")[2].removeprefix("--").lower()
    return Finding(
        f"{name} {at.value} {what}",
        (at.label("refused"),),
        ("a number in the other unit is taken for a slip, and so is this one",),
        f"write {bound}, or leave it out",
        consequence=consequence,
    )


RULE = Rule(
    name="size-limit-refused",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py: "
            "--maximum_image_size must be less than 5 megapixels; must be at least 512 pixels; "
            "helpers/data_backend/factory.py `init_backend_config`: less than 20 megapixels"
        ),
    ),
    check=_check,
)
