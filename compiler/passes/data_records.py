"""The records of the data: their format, how they become text, and which tokens bear the loss."""

from typing import Final

from tunec.compiler.analyses.architecture.image_rules import TEXT_FIRST
from tunec.compiler.passes.contract import Scribe, as_given, spec
from tunec.schemas.objective_facts import OBJECTIVES
from tunec.schemas.terms import PLAIN_TEMPLATE


def say_records(scribe: Scribe) -> None:
    """Decide what a record looks like, how it becomes text, and which of its tokens are learned."""
    _format(scribe)
    _chat_template(scribe)
    _loss_on(scribe)


def _format(scribe: Scribe) -> None:
    """Decide the record format; by default, trainers expect messages."""
    intent = scribe.facts.spec
    given, kind = intent.data.format, scribe.facts.model.architecture.kind
    objective = intent.objective.kind
    if given is not None and kind not in ("causal-lm", "vision-language"):
        misfit(
            scribe,
            "data.format",
            f"it is of data for models that write text, not of {models_of(kind)}",
        )
    elif given is not None and objective != "sft":
        _misfit_of_objective(scribe, "data.format", f"{objective} reads columns of its own")
    elif (
        given not in (None, "messages") and kind == "vision-language" and images_of_a_sample(scribe)
    ):
        misfit(scribe, "data.format", "samples with images are messages", TEXT_ALONE)
    why = as_given(intent.data, "format", "not given: as the trainer reads data by default")
    scribe.say("data.format", None if given == "messages" else given, why, spec("data.format"))


def _chat_template(scribe: Scribe) -> None:
    """Decide how conversations become texts; by default, as the tokenizer has it."""
    data, kind = scribe.facts.spec.data, scribe.facts.model.architecture.kind
    given = data.chat_template
    scores = OBJECTIVES[scribe.facts.spec.objective.kind].scores
    if given is not None and kind not in ("causal-lm", "vision-language") and not scores:
        misfit(scribe, "data.chat_template", f"{models_of(kind)} reads no conversations")
    elif given is not None and data.format in _OF_TEXT:
        scribe.error(
            "E0802",
            f"data.chat_template has no effect: records of the format {data.format} are no "
            "conversations",
            "data.chat_template",
            help="remove data.chat_template, or write the format of the records",
        )
    elif given == PLAIN_TEMPLATE and kind != "causal-lm" and images_of_a_sample(scribe):
        why = "the plain template has no place for images"
        misfit(scribe, "data.chat_template", why, ", or give the path of a template that has")
    why = as_given(data, "chat_template", "not given: the tokenizer's own")
    scribe.say("data.chat_template", given, why, spec("data.chat_template"))


def _loss_on(scribe: Scribe) -> None:
    """Decide which tokens bear the loss; by default, those that the trainer takes."""
    intent = scribe.facts.spec
    given, kind = intent.data.loss_on, scribe.facts.model.architecture.kind
    objective = intent.objective.kind
    is_text = intent.data.format == "text"
    if given is not None and kind not in ("causal-lm", "vision-language"):
        misfit(scribe, "data.loss_on", f"{models_of(kind)} has no tokens to choose from")
    elif given is not None and objective != "sft":
        _misfit_of_objective(scribe, "data.loss_on", f"{objective} learns from answers")
    elif given == "answers" and is_text:
        scribe.error(
            "E0802",
            "data.loss_on: records of the format text have no answers",
            "data.loss_on",
            help="remove data.loss_on, or write the format of the records",
        )
    why = as_given(intent.data, "loss_on", "not given: as the trainer takes them by default")
    if is_text and given == "all":
        why = "a text has no other tokens"
    scribe.say("data.loss_on", None if is_text else given, why, spec("data.loss_on"))


def models_of(kind: str) -> str:
    """A noun phrase for a kind of model."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} model"


TEXT_ALONE: Final = "; where samples hold text alone, write `images: {per_sample: 0}` under `data`"


def misfit(scribe: Scribe, at: str, why: str, otherwise: str = "") -> None:
    """Report a field of the data that the model cannot have, and what to do instead."""
    message = f"{at} does not fit this model: {why}"
    scribe.error("E0802", message, at, help=f"remove {at}{otherwise}")


def _misfit_of_objective(scribe: Scribe, at: str, why: str) -> None:
    """Report a field of the data that is for given texts alone."""
    message = f"{at} does not fit this objective: {why}"
    scribe.error("E0802", message, at, help=f"remove {at}")


def images_of_a_sample(scribe: Scribe) -> int:
    """The images of one sample, as the spec has them or as the model usually does."""
    asked = scribe.facts.spec.data.images
    usual = asked.per_sample if asked else int(text_alone(scribe) is None)
    return int(scribe.facts.pinned("data.images", usual))


_OF_TEXT: Final = frozenset({"alpaca", "prompt-completion", "text"})
"""Formats whose records have no place for an image."""


def text_alone(scribe: Scribe) -> str | None:
    """Why samples hold text alone where `data.images` is absent; None where they hold an image."""
    data = scribe.facts.spec.data
    if data.packing:
        return "none, since packed samples take no images"
    if data.format in _OF_TEXT:
        return f"none in the format {data.format}"
    card, family = scribe.facts.model.card, scribe.facts.model.architecture.family
    if family in TEXT_FIRST and not (card and card.reads_images):
        return "no image; `images: {per_sample: 1}` is one per sample"
    return None
