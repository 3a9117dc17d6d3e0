"""The parts of the training data, an edit model's reference images, and a clip's frames."""

from collections.abc import Mapping
from posixpath import normpath
from typing import Final

from tunec.compiler.facts import Facts
from tunec.compiler.passes.contract import Scribe, as_given, spec
from tunec.compiler.passes.data_records import misfit
from tunec.compiler.passes.public_data import samples_of_rows
from tunec.schemas.data_paths import Chosen, chosen, data_kind, first_of
from tunec.schemas.training_data import Part, parts

_ROUNDED: Final = 0.02
"""The share by which a rounded number may differ."""


def say_parts(scribe: Scribe) -> tuple[int, ...]:
    """List each part of the data as often as an epoch sees it, and return their limits."""
    train = scribe.facts.spec.data.train
    seen = [_part(each) for each in parts(train) for _ in range(each.times)]
    first, *more = (name for name, _ in seen)
    scribe.say("data.train", first, "passed to the trainer unchanged", spec("data.train"))
    often = "each as often as an epoch sees it" if more else "data.train names all of the data"
    scribe.say("data.more", tuple(more), often, spec("data.train"))
    limits = tuple(most for _, most in seen)
    why = "the first samples of each, as the spec has it" if any(limits) else "none is given"
    said = scribe.say("data.limits", limits if any(limits) else (), why, spec("data.train"))
    return said or (0,)


def _part(part: Part) -> tuple[str, int]:
    """A part without its slice of first samples, and their number; 0 is all of them."""
    said = chosen(part.name)
    split, sliced = first_of(said.split)
    name = str(Chosen(said.path, said.config, split)) if sliced else part.name
    given = part.samples or sliced
    return plain_name(name), min(given, sliced or given)


def plain_name(path: str, split: str = "train") -> str:
    """A file's path without `./` and detours, or a data set's name without its default split.

    No consumer gives these back when its files are read.
    """
    said = chosen(path)
    if said.split == split:
        path = str(Chosen(said.path, said.config))
    return normpath(path) if data_kind(path) == "file" else path


def say_samples(scribe: Scribe, limits: tuple[int, ...]) -> None:
    """Decide how many samples an epoch has; where each part is limited, that is their sum."""
    given, lengths = scribe.facts.spec.data.samples, scribe.facts.lengths
    most = sum(limits) if all(limits) else 0
    measured = None if lengths is None else lengths.samples
    _beyond_limits(scribe, most, {"data.samples": given, "data.lengths": measured})
    _miscounted(scribe)
    if given is None and measured is not None:
        scribe.say("data.samples", measured, "the number of lengths given", spec("data.lengths"))
    elif given is None and most:
        scribe.say("data.samples", most, "the first of each part", spec("data.train"))
    elif given is None and (counted := samples_of_rows(scribe.facts.spec.data)):
        why = "not given: what data.train holds by its card on the Hub"
        scribe.say("data.samples", counted, why, spec("data.train"))
    else:
        why = as_given(scribe.facts.spec.data, "samples", "not given")
        scribe.say("data.samples", given, why, spec("data.samples"))


def _beyond_limits(scribe: Scribe, most: int, counts: Mapping[str, int | None]) -> None:
    """Refuse a number of samples above the most that the parts give."""
    for at, count in counts.items():
        if most and count is not None and count > most:
            scribe.error(
                "E0307",
                f"{at} has {count:,} samples, but the parts of data.train give {most:,} at most",
                at,
                help=f"remove {at}, or raise `samples` of the parts",
            )


def _miscounted(scribe: Scribe) -> None:
    """Report a number of samples that is not that of the training data beside the spec."""
    given, counted = scribe.facts.spec.data.samples, scribe.facts.counted
    if given and counted and abs(given - counted) > _ROUNDED * counted:
        scribe.report(
            "samples-miscounted",
            "warning",
            f"data.samples is {given:,}, and the files of data.train hold {counted:,}",
            "data.samples",
            notes=("steps, warm-up, saving and the forecast follow from this number",),
            help=f"write `samples: {counted}`",
        )


def say_references(scribe: Scribe) -> int:
    """Say where the reference images lie, and return how many a sample has.

    That is one for each folder, or the fewest that the model needs. Each is as large as the image
    that is trained on, as trainers crop a reference to match it
    (simpletuner 4.10.1 `helpers/data_backend/factory.py`, `reference_strict`).
    """
    named = scribe.facts.spec.data.references or ()
    why = "as the spec has it" if named else "not given"
    folders = scribe.say("data.references", tuple(named), why, spec("data.references"))
    found = scribe.facts.model.architecture.references
    if found is None:
        if folders:
            _refuse(scribe, f"{_named(scribe.facts)} takes no reference images")
        return 0
    if len(folders) > found.most:
        _refuse(
            scribe,
            f"{_named(scribe.facts)} takes {reference_images(found.most)} at most, "
            f"and {len(folders)} folders are named",
            f"name {found.most} at most",
        )
    elif found.least and not folders:
        scribe.report(
            "references-assumed",
            "note",
            "data.references is not given; memory and time are planned for "
            f"{reference_images(found.least)} a sample",
            "data",
            help="name the folder of the reference images: `references: [before]` under `data`",
        )
    return min(max(len(folders), found.least), found.most)


def reference_images(count: int) -> str:
    """So many reference images, in words."""
    return f"{count} reference image" + ("" if count == 1 else "s")


def say_frames(scribe: Scribe) -> None:
    """Say how many frames a clip has: a number that the model's autoencoder takes whole."""
    asked, architecture = scribe.facts.spec.data.frames, scribe.facts.model.architecture
    every = architecture.latent_time
    paints = architecture.kind == "diffusion"
    if asked is not None and not every:
        counted = f"plans of {_named(scribe.facts)} count pictures alone"
        why = counted if paints else _TEXT_HAS_NONE
        misfit(scribe, "data.frames", why)
    elif asked is not None and (asked - 1) % every:
        below = asked - (asked - 1) % every
        scribe.error(
            "E0802",
            f"a clip of {asked} frames does not fit this model: its autoencoder takes the first "
            f"frame, and then {every} at a time",
            "data.frames",
            help=f"write {below} or {below + every}",
        )
    usual = "not given: pictures, which are clips of one frame" if every else "it paints no clips"
    why = as_given(scribe.facts.spec.data, "frames", usual if paints else "it paints nothing")
    scribe.say("data.frames", asked if asked and every else 0, why, spec("data.frames"))


_TEXT_HAS_NONE: Final = "they are those of a diffusion model's clips"


def _named(facts: Facts) -> str:
    return facts.model.path.rpartition("/")[2]


def _refuse(scribe: Scribe, why: str, help: str = "remove data.references") -> None:
    scribe.error(
        "E0802", f"data.references does not fit this model: {why}", "data.references", help=help
    )
