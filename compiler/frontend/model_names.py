"""Diagnostics for a model name that the catalogue does not have."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, shortened
from tunec.compiler.frontend.faults import error
from tunec.schemas.source import Span

_OTHER_MODELS: Final = (
    "to use another model, give its config.json: `model: path/to/config.json`; one in the local "
    "Hugging Face cache is found by its name"
)


def _other_model(name: str) -> str:
    """How to plan a model that the catalogue does not have."""
    said = shortened(name)
    return (
        f"`hf download {said} config.json` lets it be found by its name, and `tunec card {said}` "
        "makes its card; or give its config.json: `model: path/to/config.json`"
        if _REPOSITORY.fullmatch(name)
        else _OTHER_MODELS
    )


_REPOSITORY: Final = re.compile(r"[\w.-]+/[\w.-]+")


def unknown_model(name: str, at: Span) -> Iterator[Diagnostic]:
    """The diagnostics of a name that the catalogue does not have; none if it has it."""
    from tunec.schemas.models.catalogue import UnknownName, card, repository_in_loaded_form
    from tunec.schemas.models.refusals import how_stored, why_unplanned

    why, stored = why_unplanned(name), how_stored(name)
    try:
        card(name)
    except UnknownName as unknown:
        whole, at_sign, revision = name.rpartition("@")
        if at_sign and revision and is_known_model(whole):
            yield _of_a_revision(name, whole, revision, at)
            return
        if (loaded := repository_in_loaded_form(name)) is not None:
            yield _in_another_form(name, loaded, at)
            return
        if why is not None or stored is not None:
            yield _unplanned(name, why, at) if why else _packed(name, stored or "", at)
            return
        last = name.rpartition("/")[2]
        near = nearest(name, unknown.known) or nearest(last, unknown.known)
        yield error(
            "E0305",
            f"no model is called `{shortened(name)}`",
            at,
            label="not in the catalogue",
            path=("model",),
            notes=(_other_model(name),),
            help=did_you_mean(near) or "`tunec catalog models` lists the known ones",
        )


def is_known_model(name: str) -> bool:
    """Whether the catalogue has a model of this name."""
    from tunec.schemas.models.catalogue import UnknownName, card

    try:
        card(name)
    except UnknownName:
        return False
    return True


def _of_a_revision(name: str, whole: str, revision: str, at: Span) -> Diagnostic:
    return error(
        "E0305",
        f"`{shortened(name)}` is a model with a revision of its repository",
        at,
        label="a name alone",
        path=("model",),
        notes=(
            "a plan is the same for every revision: only the trainer's file names the one to load",
        ),
        help=f"write `model: {whole}`, and hand the revision to the trainer: "
        f"`extra: {{trl: {{model_revision: {shortened(revision)}}}}}` (llamafactory and ms-swift "
        "call it so too, axolotl revision_of_model)",
    )


def _in_another_form(name: str, loaded: str, at: Span) -> Diagnostic:
    """A repository in its makers' own form, whose weights another one has."""
    from tunec.schemas.models.catalogue import card

    library = "diffusers" if "_class_name" in card(loaded).config else "transformers"
    return error(
        "E0305",
        f"the files of `{shortened(name)}` are in the form of its makers' own code",
        at,
        path=("model",),
        help=f"`model: {loaded}` has its weights in the form that {library} loads",
    )


def _packed(name: str, stored: str, at: Span) -> Diagnostic:
    """A repository whose name shows that its weights are packed."""
    from tunec.schemas.models.catalogue import repository_unpacked

    whole = repository_unpacked(name)
    loading = "; `method: qlora` packs its weights into 4 bits as they are loaded"
    return error(
        "E0305",
        f"the weights of `{shortened(name)}` are stored in {stored}, by its name",
        at,
        path=("model",),
        notes=("a plan is of weights as the model's maker publishes them",),
        help=f"`model: {whole}`{loading}"
        if whole
        else f"name the repository of the model itself{loading}",
    )


def _unplanned(name: str, why: str, at: Span) -> Diagnostic:
    from tunec.schemas.models.refusals import what_instead

    return error(
        "E0305",
        f"`{shortened(name)}` cannot be planned yet: {why}",
        at,
        path=("model",),
        help=what_instead(name) or "`tunec catalog models` lists those that can",
    )
