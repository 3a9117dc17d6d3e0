"""The moments of a run, in their order.

Some moments come only in some runs: a phase is there where a term is born at it (`timeline`).
"""

from typing import Final

from tunec.compiler.analyses.memory.timeline import Moment


class At:
    """The moments by name; those without one are bounds between phases that only some runs have."""

    ENCODING: Final = Moment(0, "encoding ahead")
    """Captions and pictures become what is trained on."""
    LOADING: Final = Moment(1, "loading")
    """FSDP has yet to split what each rank has read."""
    START: Final = Moment(2)

    PROMPT: Final = Moment(10, "prompt")
    PROMPT_HEAD: Final = Moment(11, "prompt head")
    PROMPT_GATHERING: Final = Moment(12, "prompt gathering")
    GENERATION: Final = Moment(13, "generation")
    GENERATION_HEAD: Final = Moment(14, "generation head")
    GENERATION_GATHERING: Final = Moment(15, "generation gathering")
    SCORING_LAYERS: Final = Moment(16, "scoring layers")
    SCORING_GATHERING: Final = Moment(17, "scoring gathering")
    SCORING_BEGINS: Final = Moment(18, "scoring gathering")
    SCORING: Final = Moment(19, "scoring")
    HANDING_OVER: Final = Moment(20, "handing over")

    FORWARD: Final = Moment(30)
    FIRST_GATHERING: Final = Moment(31, "first gathering")
    TOWER: Final = Moment(31.5)
    VISION_FORWARD: Final = Moment(32, "vision forward")
    LAYERS: Final = Moment(32.5)
    GATHERING: Final = Moment(33, "parameter gathering")
    LOSS_FORWARD: Final = Moment(34, "loss forward")
    REFERENCE_FORWARD: Final = Moment(35, "reference forward")
    REFERENCE_LOSS: Final = Moment(36, "reference loss")

    LOSS_BACKWARD: Final = Moment(40, "loss backward")
    LOSS_DONE: Final = Moment(40.5)
    HEAD: Final = Moment(41, "head backward")
    NORMS: Final = Moment(42, "adapter norms")
    """DoRA makes the norms of a layer's weights."""
    HEAD_STEPPED: Final = Moment(43, "head stepped backward")
    HEAD_DONE: Final = Moment(43.5)
    ROOT_GATHERING: Final = Moment(44, "root gathering backward")
    LAST_LAYER: Final = Moment(45, "last layer backward")
    EXPANSION: Final = Moment(46, "weight expansion backward")
    LAST_EXPERTS: Final = Moment(47, "experts backward")
    REDUCTIONS: Final = Moment(48)
    """From here on gradients are reduced as they come."""
    ALL_REDUCED: Final = Moment(49)
    FIRST_SEGMENT: Final = Moment(50, "first segment backward")
    """Several layers have been recomputed together, and none of them is differentiated yet."""
    FIRST_LAYER: Final = Moment(51, "first layer backward")
    FIRST_EXPERTS: Final = Moment(52, "experts backward")
    DECODER_EMBEDDING: Final = Moment(53, "decoder embedding backward")
    LAYERS_DONE: Final = Moment(53.5)
    VISION_BACKWARD: Final = Moment(54, "vision backward")
    EMBEDDING: Final = Moment(55, "embedding backward")
    REDUCTION: Final = Moment(56, "gradient reduction")
    """All gradients are reduced together."""
    ORTHOGONALISATION: Final = Moment(57, "orthogonalisation after backward")

    STEP: Final = Moment(60, "optimizer step")
    EVALUATION: Final = Moment(70, "evaluation", evaluates=True)
    ANSWERS_PROMPT: Final = Moment(71, "evaluation prompt", evaluates=True)
    ANSWERS_PROMPT_HEAD: Final = Moment(72, "evaluation prompt head", evaluates=True)
    ANSWERS_PROMPT_GATHERING: Final = Moment(73, "evaluation prompt gathering", evaluates=True)
    ANSWERS: Final = Moment(74, "evaluation answers", evaluates=True)
    ANSWERS_HEAD: Final = Moment(75, "evaluation answers head", evaluates=True)
    ANSWERS_GATHERING: Final = Moment(76, "evaluation answers gathering", evaluates=True)
    SAVING: Final = Moment(80, "saving")
    MERGING: Final = Moment(81, "merging")
    END: Final = Moment(90)


def reduction(number: int, layers: float) -> Moment:
    """One reduction of gradients as they come, `number` from 1."""
    return Moment(At.REDUCTIONS.at + number / 2**16, f"gradient reduction {number}", layers)
