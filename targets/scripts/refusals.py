"""Plans that a trainer does not run, or runs differently, although every key is valid."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.plan import Plan
from tunec.schemas.models.refusals import TAKEN_OUT
from tunec.targets.deepspeed.refusals import Refusal, refused
from tunec.targets.rows import has_images

__all__ = [
    "TEXT_ALONE",
    "Refusal",
    "read_by_omegaconf",
    "reading_text",
    "refusing",
    "seen_by_own_classes",
]

TEXT_ALONE: Final = "where samples hold text alone, `--set data.images.per_sample=0`"
"""The fix if a plan has images, and the user's data may have none."""


def reading_text(source: str) -> Refusal:
    """Refuses images, for a program that is written for samples of text alone."""
    return Refusal(
        ("data.images",),
        "it is written for samples of text alone",
        has_images,
        source,
        f"compile to another target; {TEXT_ALONE}",
    )


def _sees_by_own_classes(plan: Plan) -> bool:
    return plan.data.images > 0 and plan.model.trust_remote_code


def seen_by_own_classes(source: str) -> Refusal:
    """Refuses images for a model's own classes, whose batches differ from those of `source`."""
    return Refusal(
        ("model.path", "data.images"),
        "the model's own classes take images in another form than its batches have",
        _sees_by_own_classes,
        f"{source}; OpenBMB/MiniCPM-V 0dbb566 finetune/trainer.py `compute_loss`: `data=inputs`; "
        "zai-org/GLM-4 3f79b54 finetune_demo/finetune_vision.py: `images`",
        f"compile to ms-swift, or to minicpm-v or glm4 for these models; {TEXT_ALONE}",
    )


def _taking_out(name: str) -> Refusal:
    """Refuses a part of a published model, if the trainer loads it whole or has no class for it."""
    return Refusal(
        ("model.family",),
        "what is planned is the part that reads and writes text, and it does not take that out of "
        "the whole model",
        lambda plan: name != TAKEN_OUT.get(plan.model.family, name),
        "llamafactory 0.9.5 model/loader.py `load_model`; transformers 5.23.0 "
        "models/auto/modeling_auto.py: the whole is none of image-text-to-text",
        "compile to llamafactory",
    )


def _comparing(name: str) -> Refusal:
    """Refuses answers that are compared of a model that sees, where this was not run."""
    return Refusal(
        ("objective.kind", "model.kind"),
        "which of its releases train models that see by pairs or rewards of text is not known",
        lambda plan: plan.model.kind == "vision-language" and plan.objective.kind != "sft",
        f"{name}: of its trainers those for given texts were read for such models",
        "compile to trl, or to openrlhf for DPO",
    )


def read_by_omegaconf(*slots: str) -> Iterator[Refusal]:
    """Refuses texts that OmegaConf, which Hydra uses, would read as references."""
    for slot in slots:
        yield Refusal(
            (slot,),
            "its reader takes `${...}` for another value, or for a variable of the machine",
            partial(_refers, slot),
            "omegaconf 2.3.0 omegaconf.py `OmegaConf.load`, grammar/OmegaConfGrammarLexer.g4",
            f"choose a name without `${{` as {slot}",
        )


def _refers(slot: str, plan: Plan) -> bool:
    value = plan[slot]
    names = value if isinstance(value, tuple) else (value,)
    return any("${" in str(each) for each in names)


def refusing(
    name: str, refusals: Iterable[Refusal], *, compares_in_text: bool = False
) -> Callable[[Plan, Version], Iterator[Diagnostic]]:
    """The check of a target: an error for each refusal that applies to a plan at a version.

    `compares_in_text`: its pairs or rewards of text were run with models that see, in small: LLaVA,
    Qwen3.5, Gemma 3, Mistral 3 and Llama 4.
    """
    comparing = () if compares_in_text else (_comparing(name),)
    known = (*refusals, _taking_out(name), *comparing)

    def check(plan: Plan, version: Version) -> Iterator[Diagnostic]:
        yield from refused(name, known, plan, version)

    return check
