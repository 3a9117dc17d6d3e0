"""resolve_data: the size of one sample, in tokens of text and of images."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.analyses.architecture.image_tokens import (
    UnfitImage,
    image_tokens,
    latent_tokens,
    vision_tokens,
)
from tunec.compiler.analyses.packing import Lengths, cut_tokens, samples_without_answer
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, as_given, model, spec
from tunec.compiler.passes.data_parts import (
    plain_name,
    reference_images,
    say_frames,
    say_parts,
    say_references,
    say_samples,
)
from tunec.compiler.passes.data_records import (
    TEXT_ALONE,
    images_of_a_sample,
    misfit,
    models_of,
    say_records,
    text_alone,
)
from tunec.compiler.passes.defaults import SEQUENCE, SIDE
from tunec.compiler.passes.public_data import report_missing_parts
from tunec.schemas.data_paths import Chosen, chosen, is_chosen, usual_split
from tunec.schemas.models.architecture import Architecture, ImageTokens
from tunec.schemas.training_data import Data, parts


def resolve_data(facts: Facts, _: Draft) -> Outcome:
    """Decide what a sample holds: text tokens, images, and the tokens that images become."""
    scribe = Scribe(facts)
    data = facts.spec.data
    limits = say_parts(scribe)
    _whole_pictures(scribe)
    why = as_given(data, "evaluation", "not given")
    evaluation = scribe.say("data.evaluation", _evaluation(data), why, spec("data.evaluation"))
    report_missing_parts(scribe, evaluation)
    say_records(scribe)
    say_samples(scribe, limits)
    _sequence(scribe)
    _packing(scribe)
    _images(scribe)
    say_frames(scribe)
    return scribe.outcome()


def _whole_pictures(scribe: Scribe) -> None:
    data = scribe.facts.spec.data
    if scribe.facts.model.architecture.kind == "diffusion":
        for each in parts(data.train):
            if is_chosen(each.name):
                misfit(scribe, "data.train", "pictures are read from a folder, which has no splits")


def _evaluation(data: Data) -> str | None:
    """The evaluation data, with the configuration of the training data if they share a data set."""
    if data.evaluation is None:
        return None
    asked = data.evaluation if isinstance(data.evaluation, str) else data.evaluation.name
    said, trained = chosen(asked), [chosen(each.name) for each in parts(data.train)]
    same = [each for each in trained if each.path == said.path]
    configs = {each.config for each in same}
    config = said.config or (configs.pop() if len(configs) == 1 else None)
    evaluation = str(Chosen(said.path, config, said.split))
    return plain_name(evaluation, usual_split(evaluation, map(str, trained)))


def _cut(scribe: Scribe, sequence: int) -> None:
    """Report how much of the samples the length limit cuts off; packing may split them instead."""
    data, lengths = scribe.facts.spec.data, scribe.facts.lengths
    splits = data.packing and scribe.facts.counting.packing != "bfd"
    if lengths is None or lengths.is_mean or splits:
        return
    samples, tokens = cut_tokens(lengths, sequence)
    if not samples:
        return
    there = sum(length * count for length, count in lengths.counts)
    goes = scribe.facts.spec.objective.kind in scribe.facts.counting.leaves_out
    never_seen = f"{tokens:,} of {there:,} tokens are never seen: {tokens / there:.1%}"
    scribe.report(
        "samples-cut",
        "note",
        f"{samples:,} of {lengths.samples:,} samples are longer than {sequence} tokens and will "
        f"be {'left out' if goes else 'truncated'}",
        "data.sequence" if data.sequence else "data",
        notes=() if goes else (never_seen, *_emptied(scribe.facts, lengths, sequence)),
        help=f"raise data.sequence to {lengths.counts[-1][0]} to keep all of them",
    )


def _emptied(facts: Facts, lengths: Lengths, sequence: int) -> Iterator[str]:
    samples = samples_without_answer(lengths, sequence)
    drops = facts.spec.objective.kind in facts.counting.leaves_out_unanswered
    goes = drops and not facts.spec.data.packing  # of packed samples none is dropped
    if samples:
        yield (
            f"{samples:,} samples have no answer before the cut: where the loss is of answers "
            f"alone, they {'are left out' if goes else 'teach nothing'} (`tunec data` names their "
            "lines)"
        )


def _sequence(scribe: Scribe) -> None:
    asked = scribe.facts.spec.data.sequence
    architecture = scribe.facts.model.architecture
    if architecture.kind == "diffusion":
        if asked:
            misfit(scribe, "data.sequence", "a diffusion model has no text sequence")
        if scribe.facts.spec.data.lengths:
            misfit(scribe, "data.lengths", "a diffusion model's steps do not depend on them")
        scribe.say("data.sequence", 0, "a diffusion model has none", model("config"))
        return
    if asked is None:
        context = architecture.context or SEQUENCE.value
        usual = min(context, SEQUENCE.value)
        sequence = scribe.say("data.sequence", usual, "not given: a usual length")
        scribe.report(
            "sequence-assumed",
            "note",
            f"data.sequence is not given; memory and time are planned for {sequence} tokens",
            "data",
            help="give the length of the longest training sample",
        )
        _cut(scribe, sequence)
        return
    sequence = scribe.say("data.sequence", asked, "as the spec has it", spec("data.sequence"))
    _cut(scribe, sequence)
    _beyond_context(scribe, sequence)


_UNBOUNDED: Final = frozenset({"bloom", "deberta", "deberta-v2"})
"""Families that only use distances between tokens: by ALiBi, or in buckets whose last one is open.
Sources: transformers 5.23.0 `models/bloom/modeling_bloom.py`, `build_alibi_tensor`, and
`models/deberta_v2/modeling_deberta_v2.py`, `DisentangledSelfAttention`."""
_TABULATED: Final = frozenset({"chatglm", "codegen", "ctrl", "gptj", "mpt", "VisualGLMModel"})
"""Families whose tables of positions or distances end, and are no parameters.

transformers 5.23.0 `create_sinusoidal_positions` (`models/gptj/modeling_gptj.py`),
`build_mpt_alibi_tensor` (`models/mpt/modeling_mpt.py`), `positional_encoding`
(`models/ctrl/modeling_ctrl.py`); `modeling_chatglm.py` of THUDM/glm-4-9b,
`rotary_pos_emb(seq_length)`, and of THUDM/visualglm-6b, `RotaryEmbedding`.
"""


def _beyond_context(scribe: Scribe, sequence: int) -> None:
    """Refuse a sequence beyond a table of positions; warn if it exceeds the trained context.

    Rotary positions are computed for any place (transformers 5.23.0
    `models/llama/modeling_llama.py`, `LlamaRotaryEmbedding.forward`), and trl 1.16.0 cuts samples
    only at `max_length`.
    """
    architecture = scribe.facts.model.architecture
    context = architecture.context
    if not context or sequence <= context or architecture.family in _UNBOUNDED:
        return
    if _has_table(architecture):
        scribe.error(
            "E0801",
            f"a sequence of {sequence} tokens is longer than the {context} tokens "
            "that the model's positions allow",
            scribe.place("data.sequence", "data.sequence"),
            help=f"use at most {context}",
        )
        return
    scribe.report(
        "positions-untrained",
        "warning",
        f"a sequence of {sequence} tokens is longer than the {context} tokens that the model's "
        "config names",
        scribe.place("data.sequence", "data.sequence"),
        notes=(
            "positions beyond are computed as they come, and the model was not trained on them",
        ),
        help=f"use at most {context}, or a config whose positions are scaled (rope_scaling)",
    )


def _has_table(architecture: Architecture) -> bool:
    """Whether positions are looked up in a table that ends at the context length."""
    leaves = (m.path.rpartition(".")[2] for m in architecture.modules if m.part == "text")
    tables = ("position" in leaf or leaf == "wpe" for leaf in leaves)
    return architecture.family in _TABULATED or any(tables)


def _packing(scribe: Scribe) -> None:
    packing, kind = scribe.facts.spec.data.packing, scribe.facts.model.architecture.kind
    if packing and kind == "vision-language":
        if images_of_a_sample(scribe):
            misfit(
                scribe, "data.packing", "samples with images cannot share a sequence", TEXT_ALONE
            )
    elif packing and kind != "causal-lm":
        misfit(scribe, "data.packing", f"samples of {models_of(kind)} cannot share a sequence")
    why = as_given(scribe.facts.spec.data, "packing")
    scribe.say("data.packing", packing, why, spec("data.packing"))


def _images(scribe: Scribe) -> None:
    data, kind = scribe.facts.spec.data, scribe.facts.model.architecture.kind
    references = say_references(scribe)
    if kind != "diffusion" and data.resolution:
        misfit(scribe, "data.resolution", "it is the side of a diffusion model's images")
    if kind == "diffusion":
        if data.images:
            misfit(scribe, "data.images", "the images of a diffusion model have data.resolution")
        _training_images(scribe, references)
    elif kind == "vision-language":
        _sample_images(scribe)
    else:
        if data.images:
            misfit(scribe, "data.images", f"{models_of(kind)} takes no images")
        _say_images(scribe, 0, 0, 0, 0, 0, "the model takes no images")


def _training_images(scribe: Scribe, references: int) -> None:
    """Say the sizes of one generated image and of its reference images, tokens of one sequence."""
    side = scribe.facts.spec.data.resolution or SIDE.value
    why = (
        "data.resolution"
        if scribe.facts.spec.data.resolution
        else f"not given: {SIDE.value}, as usual"
    )
    beside = f"{why}; {reference_images(references)}" if references else None
    tokens = references * latent_tokens(scribe.facts.model.architecture, side, side)
    _say_images(scribe, 1 + references, side, side, tokens, 0, why, beside)


def _sample_images(scribe: Scribe) -> None:
    rule = scribe.facts.model.architecture.images
    count = images_of_a_sample(scribe)
    if rule is None:
        if count:
            scribe.error(
                "E0802",
                "how many tokens an image becomes in this model is not known",
                "data.images",
                help="to plan text alone, write `images: {per_sample: 0}` under `data`",
            )
        _say_images(scribe, 0, 0, 0, 0, 0, "how its images become tokens is not known")
        return
    if not count:
        asked = scribe.facts.spec.data.images
        usual = None if asked else text_alone(scribe)
        why = f"not given: {usual}" if usual else "samples hold text alone"
        _say_images(scribe, 0, 0, 0, 0, 0, why)
        return
    if _trains_convolutions(scribe):
        misfit(
            scribe,
            "data.images",
            "its tower is one of convolutions, and what they keep to be trained is not known",
            ", or freeze the tower: `method: {full: {freeze: [vision]}}`" + TEXT_ALONE,
        )
    width, height = _image_size(scribe, rule)
    try:
        text = count * image_tokens(rule, width, height)
        tower = count * sum(vision_tokens(rule, width, height))
    except UnfitImage as unfit:
        misfit(scribe, "data.images", str(unfit))
        text = tower = 0
    given = scribe.facts.spec.data.images is not None
    usual = "not given: one per sample; `images: {per_sample: 0}` trains on text alone"
    counted = "as given" if given else usual
    why = f"the family's rule {rule.rule!r}"
    _say_images(scribe, count, width, height, text, tower, why, counted)


def _trains_convolutions(scribe: Scribe) -> bool:
    """Whether a tower without layers of its own is trained, beside the text."""
    architecture, full = scribe.facts.model.architecture, scribe.facts.spec.method.full
    if full is None or "vision" in full.freeze:
        return False
    layered = any(stack.part == "vision" for stack in architecture.stacks)
    return not layered and any(
        module.part == "vision" and module.kind == "conv" for module in architecture.modules
    )


def _image_size(scribe: Scribe, rule: ImageTokens) -> tuple[int, int]:
    """Pixels of an image: as given, the tower's square, or assumed if any size is possible."""
    asked = scribe.facts.spec.data.images
    given = (asked.width or asked.height) if asked else None
    side = given or rule.image_size
    if not side:
        side = SIDE.value
        text_alone = "" if asked else "; where samples hold text alone, images: {per_sample: 0}"
        scribe.report(
            "image-size-assumed",
            "note",
            "this model takes images in their original size, and data.images gives none; memory "
            f"and time are planned for {side} x {side} pixels",
            "data.images",
            help="set data.images.width and data.images.height to the size of the largest image"
            + text_alone,
        )
    return (asked.width if asked else None) or side, (asked.height if asked else None) or side


def _say_images(
    scribe: Scribe,
    count: int,
    width: int,
    height: int,
    text: int,
    tower: int,
    why: str,
    counted: str | None = None,
) -> None:
    scribe.say("data.images", count, counted or why, spec("data.images"))
    scribe.say("data.image_width", width, why, spec("data.images"))
    scribe.say("data.image_height", height, why, spec("data.images"))
    scribe.say("data.image_tokens", text, why, spec("data.images"), model("config"))
    scribe.say("data.vision_tokens", tower, why, spec("data.images"), model("config"))
