"""Sizes of images in SimpleTuner, in megapixels or pixels."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.facts.diffusion import amount, configs, flags_read, said, word
from tunec.compiler.lints.rule import Finding, rule

_LEAST: Final = "minimum_image_size"
_SIZES: Final = ("resolution", "maximum_image_size", "target_downsample_size", _LEAST)
MOST_MEGAPIXELS: Final = 20.0
_LEAST_PIXELS: Final = 64.0
_TAKEN: Final = 10.0
"""No size in megapixels reaches the first, and no side of an image is below the second; limits up
to the third stay megapixels under pixel_area."""


@rule(
    "error", "init", consumers=("simpletuner",), reads=(*flags_read(*_SIZES), "simpletuner-data:*")
)
def megapixels_taken_for_pixels(run: LintContext) -> Iterator[Finding]:
    """A size in pixels where megapixels are expected, or the reverse."""
    for document in configs(run):
        kind = word(document, "resolution_type", "pixel_area")
        yield from _of(kind, [said(document, each) for each in _SIZES])
    for document in run.of("simpletuner-data"):
        for name in document.found:
            if "." not in name:
                kind = str(document.value(f"{name}.resolution_type", ""))
                yield from _of(kind, [document.get(f"{name}.{each}") for each in _SIZES])


def _of(kind: str, places: list[Place | None]) -> Iterator[Finding]:
    for at in places:
        size = amount(at)
        if at is None or size is None or size <= 0:
            continue
        if kind == "area" and size > MOST_MEGAPIXELS:
            yield _finding(at, f"{size:g} is megapixels", "pixels", f"{size * size / 1e6:.2g}")
        elif kind == "pixel_area" and size <= _TAKEN and "resolution" not in at.path.lower():
            continue  # read as megapixels all the same
        elif _LEAST in at.path or "MINIMUM_RESOLUTION" in at.path:
            continue  # so few pixels leave every picture in
        elif kind in ("pixel", "pixel_area") and size < _LEAST_PIXELS:
            yield _finding(at, f"{size:g} is pixels", "megapixels", f"{round(size**0.5 * 1024)}")


def _finding(at: Place, read: str, meant: str, better: str) -> Finding:
    name = at.path.rpartition(".")[2].removeprefix("--").lower()
    return Finding(
        f"{name} {read} by its resolution_type, and looks like {meant}",
        (at.label("the other unit"),),
        ("area counts megapixels; pixel is the shorter side; pixel_area a side of a square",),
        f"write {better}, or another resolution_type",
    )
