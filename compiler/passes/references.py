"""The reference images of an edit model: where they lie, and how many a sample has."""

from tunec.compiler.facts import Facts
from tunec.compiler.passes.contract import Scribe, spec


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


def _named(facts: Facts) -> str:
    return facts.model.path.rpartition("/")[2]


def _refuse(scribe: Scribe, why: str, help: str = "remove data.references") -> None:
    scribe.error(
        "E0802", f"data.references does not fit this model: {why}", "data.references", help=help
    )
