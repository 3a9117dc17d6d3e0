"""Rows that the targets of trainers share, and the conditions on a plan that such rows use."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, SlotNotSet
from tunec.compiler.target import (
    ALWAYS,
    Cannot,
    Entry,
    Json,
    derived,
    fixed,
    in_every_plan,
    on_deepspeed,
    same,
)
from tunec.schemas.data_paths import data_kind, data_name, first_of
from tunec.schemas.frozen import replace
from tunec.schemas.objective_facts import OBJECTIVES
from tunec.schemas.terms import ObjectiveKind
from tunec.targets.read_only import split_names

# ── what rows ask of a plan ──────────────────────────────────────────────────────────────────────


def has_adapter(plan: Plan) -> bool:
    """Whether LoRA adapters are trained; otherwise their settings have no effect."""
    return plan.adapter.kind == "lora"


def is_quantised(plan: Plan) -> bool:
    """Whether the base is stored in a quantized format."""
    return plan.quantization.format != "none"


def in_four_bits(plan: Plan) -> bool:
    """Whether the base is stored in 4 bits; otherwise 4-bit settings have no effect."""
    return plan.quantization.format in ("nf4", "fp4")


def is_supervised(plan: Plan) -> bool:
    """Whether the model is trained on given texts (SFT)."""
    return plan.objective.kind == "sft"


def is_rewarded(plan: Plan) -> bool:
    """Whether the model is trained by rewards for its own answers (GRPO)."""
    return plan.objective.kind == "grpo"


def writes_answers(plan: Plan) -> bool:
    """Whether the model is trained on answers that it generates (GRPO, PPO)."""
    return OBJECTIVES[plan.objective.kind].generates


def has_critic(plan: Plan) -> bool:
    """Whether a second model is trained to give each token a value (PPO)."""
    return OBJECTIVES[plan.objective.kind].values


def is_of_pairs(plan: Plan) -> bool:
    """Whether the model is trained on pairs of answers (DPO)."""
    return plan.objective.kind == "dpo"


def has_pairs(plan: Plan) -> bool:
    """Whether a sample is a pair of answers (DPO, reward models)."""
    return OBJECTIVES[plan.objective.kind].sequences > 1


def scores_texts(plan: Plan) -> bool:
    """Whether the model is trained to give each text one number (a reward model)."""
    return OBJECTIVES[plan.objective.kind].scores


def splits_groups(plan: Plan) -> bool:
    """Whether an evaluation batch over all devices splits a GRPO group of answers."""
    evaluates = is_rewarded(plan) and plan.schedule.evaluation_steps is not None
    return evaluates and plan.batch.evaluation * plan.parallel.world % plan.generation.samples > 0


def evaluates(plan: Plan) -> bool:
    """Whether the plan has evaluation data."""
    return plan.data.evaluation is not None


def in_epochs(plan: Plan) -> bool:
    """Whether the length of training is given in epochs."""
    return plan.schedule.epochs is not None


def in_steps(plan: Plan) -> bool:
    """Whether the length of training is given in steps."""
    return plan.schedule.epochs is None


def rises_over_a_share(plan: Plan) -> bool:
    """Whether the warm-up is given as a share of all steps."""
    return plan.schedule.warmup_share is not None


def recomputes_layers(plan: Plan) -> bool:
    """Whether activations are recomputed layer by layer."""
    return plan.activation_checkpointing.mode == "layer"


def on_fsdp(plan: Plan) -> bool:
    """Whether the engine is FSDP."""
    return plan.parallel.engine == "fsdp"


def without_deepspeed(plan: Plan) -> bool:
    """Whether the engine is not DeepSpeed."""
    return not on_deepspeed(plan)


def has_images(plan: Plan) -> bool:
    """Whether samples contain images."""
    return plan.data.images > 0


def has_text_alone(plan: Plan) -> bool:
    """Whether samples contain only text."""
    return not has_images(plan)


def leaves_parts_unused(plan: Plan) -> bool:
    """Whether parameters are trained that no sample reaches: a tower where there is no image."""
    trains_all = plan.adapter.kind == "none" and "vision" not in plan.adapter.frozen
    return trains_all and plan.model.kind == "vision-language" and has_text_alone(plan)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────


TRAINING_DATA: Final = ("data.train", "data.more", "data.limits")
"""The slots of the training data: each data set, and how many of its first samples are taken."""


def training_parts(seen: Sequence[tuple[str, int]]) -> Mapping[str, Any]:
    """The slots of data sets in their order, each with its limit; 0 is none."""
    (first, *more), limits = [name for name, _ in seen], tuple(most for _, most in seen)
    return {
        "data.train": first,
        "data.more": tuple(more),
        "data.limits": limits if any(limits) else (),
    }


def loaded_parts(parts: Iterable[tuple[str, str | None, str | None]]) -> Mapping[str, Any]:
    """The slots of what `load_dataset` is given, each a path, a configuration and a split.

    None, where a local path has a configuration, or another split than `train` or its first
    samples, of which no slot's value tells.
    """
    seen: list[tuple[str, int]] = []
    for path, config, split in parts:
        whole, most = first_of(split)
        if data_kind(path) != "name" and (config or (whole or "train") != "train"):
            return {}
        seen.append((data_name(path, config, whole), most))
    return training_parts(seen) if seen else {}


def unlimited(source: str) -> Entry:
    """The row of a program that takes every sample of its data sets."""
    return fixed("data.limits", (), source)


def if_decided(write: Callable[[Plan], Mapping[str, Json]], plan: Plan) -> Mapping[str, Json]:
    """What a row writes beside its own keys; nothing, if what is translated has no such slot.

    So a share of the data that is split off to evaluate on: it goes from file to file.
    """
    try:
        return write(plan)
    except SlotNotSet:
        return {}


def names_under(key: str, slot: str) -> Callable[[Plan], Mapping[str, Json]]:
    """Write a slot's names as a list under a key; without names the key is left out."""

    def write(plan: Plan) -> Mapping[str, Json]:
        names = plan[slot]
        return {key: list(names)} if names else {}

    return write


def whole_epochs(key: str) -> Callable[[Plan], Mapping[str, Json]]:
    """Write the number of epochs under a key, if it is whole."""

    def write(plan: Plan) -> Mapping[str, Json]:
        epochs = plan.schedule.epochs
        return {key: int(epochs)} if epochs is not None and epochs == int(epochs) else {}

    return write


def row(
    keys: tuple[str, ...],
    slots: tuple[str, ...],
    write: Callable[[Plan], Mapping[str, Json]],
    read: Callable[[Mapping[str, Json]], Mapping[str, Any]],
    source: str,
    *,
    since: str | None = None,
    until: str | None = None,
    absent: Mapping[str, Any] | None = None,
    when: Callable[[Plan], bool] = in_every_plan,
    yields: bool = False,
    beside: tuple[str, ...] = (),
) -> Entry:
    """A row that is read and written; `absent` holds in every release that has the keys."""
    return Entry(
        keys,
        slots,
        write,
        read,
        source,
        since,
        until,
        ((ALWAYS, absent),) if absent is not None else (),
        when=when,
        yields=yields,
        beside=beside,
    )


NO_DROPOUT_FOR_PAIRS: Final = Cannot("its trainer of pairs switches all dropout off", True, (0.0,))
"""Why a trainer whose DPO switches dropout off refuses dropout in adapters there."""


def dropout(
    key: str, absent: float, methods: Mapping[ObjectiveKind, tuple[str, Json]], source: str
) -> Entry:
    """The row for dropout in adapters, of a trainer that switches it off for pairs of answers.

    TRL's trainers do so unless their arguments say `disable_dropout: false` (trl 0.9.6 to 1.16.0
    trainer/dpo_config.py, 0.24.0 to 1.16.0 reward_config.py), which no key of such a trainer does.
    `methods` has the key and the value that ask for each of these objectives. A trainer takes
    `absent` where a file has no `key`.
    """
    asked = tuple(dict.fromkeys(name for name, _ in methods.values()))

    def write(plan: Plan) -> Mapping[str, Json]:
        method = methods.get(plan.objective.kind)
        return {key: plan.adapter.dropout, **(dict([method]) if method else {})}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        is_off = any(found.get(name) == word for name, word in methods.values())
        return {"adapter.dropout": 0.0 if is_off else found.get(key, absent)}

    return row(
        (key, *asked),
        ("adapter.dropout",),
        write,
        read,
        source,
        absent={"adapter.dropout": absent},
        when=has_adapter,
        beside=asked,
    )


def saved_modules(
    key: str,
    scoring: Mapping[str, Json],
    scores: Callable[[Mapping[str, Json]], bool],
    source: str,
) -> Entry:
    """The row for modules that are trained beside adapters, a reward model's head among them.

    PEFT adds that head, whose name depends on the model, to a list without one (peft 0.18.1 to
    0.20.0 peft_model.py `PeftModelForSequenceClassification.__init__`). `scoring` is what a file
    of a reward model says; `scores` tells whether a file says so.
    """
    named = names_under(key, "adapter.also_train")

    def write(plan: Plan) -> Mapping[str, Json]:
        return {**named(plan), **(scoring if scores_texts(plan) else {})}

    def read(found: Mapping[str, Json]) -> Mapping[str, Any]:
        names = split_names(found.get(key))
        return {} if scores(found) and not names else {"adapter.also_train": names}

    return row(
        (key, *scoring),
        ("adapter.also_train",),
        write,
        read,
        source,
        absent={"adapter.also_train": ()},
        when=has_adapter,
        beside=tuple(scoring),
    )


def length(key: str, absent: int, source: str, of_images: str) -> tuple[Entry, Entry]:
    """The rows for the bound on a sample's tokens.

    Image tokens count too, by the source `of_images`.
    """
    text = same(key, "data.sequence", source, default=absent)
    return (
        replace(text, when=lambda plan: not has_images(plan)),
        derived(
            key,
            lambda plan: plan.data.sequence + plan.data.image_tokens,
            of_images,
            when=has_images,
        ),
    )


def recomputes_each_layer_by_itself(source: str) -> tuple[Entry, ...]:
    """The rows of a trainer that recomputes every layer on its own, without reentrant autograd."""
    reentrant = "activation_checkpointing.reentrant"
    return (
        fixed(reentrant, value=False, source=source, when=recomputes_layers),
        fixed("activation_checkpointing.segment", 1, f"{source}: a layer by itself"),
        fixed("activation_checkpointing.gap", 0, f"{source}: every layer"),
    )


_BATCHES: Final = ("batch.micro", "batch.evaluation")


def micro_batch(key: str, absent: int, source: str) -> Entry:
    """The row of a key that sets the micro batch of training and of evaluation alike, in samples.

    A trainer takes `absent` where a file has no such key.
    """
    return row(
        (key,),
        _BATCHES,
        lambda plan: {key: plan.batch.micro},
        lambda found: dict.fromkeys(_BATCHES, found[key]),
        source,
        absent=dict.fromkeys(_BATCHES, absent),
    )


def adapted_parameters(key: str, source: str, *, since: str | None = None) -> Entry:
    """The row of the parameters that LoRA adapts beside modules, such as those of experts."""
    slot = "adapter.parameters"
    return row(
        (key,),
        (slot,),
        names_under(key, slot),
        lambda found: {slot: split_names(found[key])},
        source,
        since=since,
        absent={slot: ()},
        when=has_adapter,
    )
