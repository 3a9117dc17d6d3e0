"""Optimizers that need or exclude another setting."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.training_loop import is_number, is_whole, number_of
from tunec.compiler.lints.rule import Finding, rule


@rule(
    "error",
    "init",
    consumers=("transformers", "llamafactory"),
    reads=("trainer:optim", "llamafactory:use_badam"),
)
def layerwise_optimizer_refused(run: LintContext) -> Iterator[Finding]:
    """A layer-wise optimizer is used where gradients have to be gathered first."""
    yield from _badam(run)
    for place in run.each("trainer", "optim"):
        name = place.value
        if not isinstance(name, str) or not name.endswith("_layerwise"):
            continue
        steps = run.effective("trainer", "gradient_accumulation_steps")
        world = run.world
        if is_whole(steps.value) and steps.value > 1:
            yield _layerwise_finding(
                place, f"{steps.value} micro batches of accumulation", steps.place
            )
        elif world is not None and is_whole(world.value) and world.value > 1:
            yield _layerwise_finding(place, f"{world.value} processes", run.place(world))


def _badam(run: LintContext) -> Iterator[Finding]:
    """Report BAdam in several processes, which LLaMA-Factory allows only under ZeRO-3."""
    world = run.value("parallel.world")
    for document in run.of("llamafactory"):
        at, mode = document.get("use_badam"), document.get("badam_mode")
        if at is None or at.value is not True or not is_whole(world) or world < 2:
            continue
        stage = run.effective("deepspeed", "zero_optimization.stage")
        is_ratio = mode is not None and mode.value == "ratio"
        if not is_ratio and (stage.value == 3 or document.unknown & {"deepspeed"}):
            continue
        beside = mode if is_ratio else stage.place
        yield Finding(
            f"LLaMA-Factory refuses use_badam with {world} processes "
            + ("by ratio" if is_ratio else "without ZeRO stage 3"),
            (at.label("refused"), *also(beside)),
            ("BAdam by layer runs on one process or under ZeRO-3, by ratio on one process only",),
            "use ZeRO stage 3" if not is_ratio else "write badam_mode: layer, under ZeRO stage 3",
            consequence="parse",
        )


def _layerwise_finding(place: Place, what: str, other: Place | None) -> Finding:
    labels: tuple[Label, ...] = (place.label("steps in the backward pass"),)
    if other is not None:
        labels = (*labels, other.label("", primary=False))
    return Finding(
        f"optim {place.value} does not work with {what}",
        labels,
        ("it steps each parameter as soon as its gradient is known, before the others are added",),
        f"write optim: {str(place.value).removesuffix('_layerwise')}",
    )


@rule("error", "init", consumers=("transformers",), reads=("trainer:optim",))
def optimizer_targets_missing(run: LintContext) -> Iterator[Finding]:
    """A low-rank optimizer is missing the list of modules that it works on."""
    for document in run.of("trainer"):
        place = document.get("optim")
        if place is None or not isinstance(place.value, str):
            continue
        if not place.value.startswith(("galore_", "apollo_")):
            continue
        holder = place.document
        targets = holder.get("optim_target_modules")
        if (targets is None or targets.value is None) and (
            "optim_target_modules" not in holder.unknown
        ):
            yield Finding(
                f"{place.path} {place.value} needs optim_target_modules",
                (place.label("needs them"),),
                ("it works on the linear layers that are named, and on no others",),
                "write optim_target_modules: all-linear, or names as [attn, mlp]",
            )


_LOW_RANK: Final = ("galore_", "apollo_")


@rule("warning", "silent", consumers=("transformers",), reads=("trainer:optim_target_modules",))
def optimizer_targets_unread(run: LintContext) -> Iterator[Finding]:
    """Modules for a low-rank optimizer are set, but the optimizer is not a low-rank one."""
    for document in run.of("trainer"):
        targets, optim = document.get("optim_target_modules"), document.get("optim")
        if targets is None or targets.value in (None, [], "") or _is_open(document):
            continue
        word = "the default optimizer" if optim is None else str(optim.value)
        if not word.startswith(_LOW_RANK):
            yield Finding(
                f"{targets.path} does nothing: {word} treats all parameters the same",
                (targets.label("not read"), *also(optim)),
                ("GaLore and APOLLO alone are given modules",),
                "write optim: galore_adamw, or remove it",
                Fix((targets.removed(),), "safe"),
            )


def _is_open(document: Document) -> bool:
    return document.is_view or "optim" in document.unknown


@rule("error", "step", consumers=("deepspeed", "transformers"), reads=("trainer:optim",))
def projection_under_zero(run: LintContext) -> Iterator[Finding]:
    """GaLore or APOLLO gets weights that ZeRO has flattened."""
    optimizer = run.said("trainer", "optim")
    stage = run.effective("deepspeed", "zero_optimization.stage")
    if optimizer is None or not isinstance(optimizer.value, str):
        return
    if not optimizer.value.startswith(_LOW_RANK) or stage.value not in (1, 2, 3):
        return
    yield Finding(
        f"{optimizer.value} at ZeRO stage {stage.value} sees no matrices",
        (optimizer.label("projects matrices"), *also(stage.place, "hands it one flat vector")),
        (
            (
                "ZeRO puts the weights of a group one behind the other and gives the optimizer its "
                "share of them, without their shapes"
            ),
        ),
        "use AdamW with ZeRO, or GaLore and APOLLO without DeepSpeed",
    )


_RATE_FREE_NAMES: Final = ("prodigy", "dadapt", "d-adapt", "d_adapt")
_KEYS: Final = (
    ("simpletuner", "optimizer", "learning_rate"),
    ("axolotl", "optimizer", "learning_rate"),
    ("diffusers", "optimizer", "learning_rate"),
    ("trainer", "optim", "learning_rate"),
    ("deepspeed", "optimizer.type", "optimizer.params.lr"),
)
_DEEPSPEED: Final = ("deepspeed_config", "--deepspeed_config", "DEEPSPEED_CONFIG")
_SMALL: Final = 0.1


@rule(
    "warning",
    "silent",
    consumers=("simpletuner", "diffusers"),
    reads=tuple(f"{kind}:{rate}" for kind, _, rate in _KEYS),
)
def rate_of_a_rate_free_optimizer(run: LintContext) -> Iterator[Finding]:
    """A small learning rate is set for an optimizer that finds the rate itself."""
    for kind, optimizer, rate in _KEYS:
        for document in run.of(kind):
            found, at = document.get(optimizer), document.get(rate)
            if kind == "simpletuner" and any(document.get(key) for key in _DEEPSPEED):
                continue  # another optimizer takes its place
            if found is None or at is None or not isinstance(found.value, str):
                continue
            number = number_of(at.value)
            is_free = found.value.lower().startswith(_RATE_FREE_NAMES)
            if is_free and number is not None and 0 < number < _SMALL:
                yield _rate_free_finding(found, at, number)


def _rate_free_finding(optimizer: Place, rate: Place, number: float) -> Finding:
    return Finding(
        f"a rate of {rate.value} for {optimizer.value}, which multiplies the rate that it finds",
        (rate.label("a factor, not a rate"), optimizer.label("", primary=False)),
        (
            (
                f"its steps are {round(1 / number):,} times smaller than those that it estimates: "
                "the loss hardly moves, and nothing reports it"
            ),
        ),
        "write 1.0; its d_coef scales the estimate",
        Fix((rate.replaced(1.0),), "unsafe"),
    )


_FLAT: Final = ("constant", "constant_with_warmup")


@rule("warning", "silent", consumers=("transformers",), reads=("trainer:optim",))
def schedule_of_a_schedule_free_optimizer(run: LintContext) -> Iterator[Finding]:
    """A decaying schedule is set for an optimizer that replaces the schedule."""
    optim, kind = run.said("trainer", "optim"), run.effective("trainer", "lr_scheduler_type")
    if optim is None or not isinstance(optim.value, str) or not isinstance(kind.value, str):
        return
    if not optim.value.startswith("schedule_free_") or kind.value in _FLAT:
        return
    yield Finding(
        f"{optim.value} runs under a {kind.value} schedule, and needs none",
        (optim.label("averages instead of decaying"), *also(kind.place)),
        (
            (
                "the optimizer averages its iterates in place of a schedule; decayed twice, the "
                "last part of training hardly counts"
            ),
            *([] if kind.place else [f"lr_scheduler_type is left out: {kind.by} is {kind.value}"]),
        ),
        "write lr_scheduler_type: constant",
    )


_MOST: Final = 0.05
"""Adam moves a weight by about the rate in each step, and weights of language models are about 0.02
in size (`initializer_range` of their configs)."""
_OTHERS: Final = ("prodigy", "dadapt", "sgd", "lomo", "adafactor", "schedule_free", "rmsprop")


@rule(
    "warning",
    "step",
    consumers=("transformers", "deepspeed"),
    reads=("trainer:learning_rate", "deepspeed:optimizer.params.lr"),
)
def learning_rate_beyond_adam(run: LintContext) -> Iterator[Finding]:
    """A learning rate with which Adam's steps are larger than the weights."""
    optimizer = run.said("trainer", "optim")
    if optimizer is None or _is_of_adam(optimizer.value):
        for place in run.each("trainer", "learning_rate"):
            yield from _judged(place)
    kind = run.said("deepspeed", "optimizer.type")
    if kind is not None and _is_of_adam(str(kind.value).lower()):
        for place in run.each("deepspeed", "optimizer.params.lr"):
            yield from _judged(place)


def _is_of_adam(name: object) -> bool:
    return isinstance(name, str) and "adam" in name and not any(each in name for each in _OTHERS)


def _judged(place: Place) -> Iterator[Finding]:
    if is_number(place.value) and place.value >= _MOST:
        yield Finding(
            f"a learning rate of {place.value:g} moves every weight by about that much each step",
            (place.label("no model survives it"),),
            ("weights of language models are of the order of 0.02",),
            f"did you mean {_meant(place.value):g}?",
        )


def _meant(value: float) -> float:
    """The rate that was probably meant: `2e-5` for `2e5`, `5e-5` for `5`."""
    return value if value <= 0 else float(f"{value:e}".split("e")[0]) * 1e-5
