"""A layer-wise optimizer where gradients are to be gathered first."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    yield from _badam(run)
    for place in run.each("trainer", "optim"):
        name = place.value
        if not isinstance(name, str) or not name.endswith("_layerwise"):
            continue
        steps = run.effective("trainer", "gradient_accumulation_steps")
        world = run.world
        if is_whole(steps.value) and steps.value > 1:
            yield _finding(place, f"{steps.value} micro batches of accumulation", steps.place)
        elif world is not None and is_whole(world.value) and world.value > 1:
            yield _finding(place, f"{world.value} processes", run.place(world))


def _badam(run: Run) -> Iterator[Finding]:
    """LLaMA-Factory lets its blocks be trained by several processes under ZeRO-3 alone."""
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
            f"use_badam with {world} processes "
            + ("by ratio" if is_ratio else "without ZeRO stage 3"),
            (at.label("refused"), *([beside.label("", primary=False)] if beside else [])),
            ("layer-wise BAdam is for one process, or for ZeRO-3; by ratio, for one alone",),
            "use ZeRO stage 3" if not is_ratio else "write badam_mode: layer, under ZeRO stage 3",
            consequence="parse",
        )


def _finding(place: Place, what: str, other: Place | None) -> Finding:
    labels: tuple[Label, ...] = (place.label("steps in the backward pass"),)
    if other is not None:
        labels = (*labels, other.label("", primary=False))
    return Finding(
        f"optim {place.value} with {what}",
        labels,
        ("it steps each parameter as soon as its gradient is there, before the others are added",),
        f"write optim: {str(place.value).removesuffix('_layerwise')}",
    )


RULE = Rule(
    name="layerwise-optimizer-refused",
    severity="error",
    consequence="init",
    consumers=("transformers", "llamafactory"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `get_optimizer_cls_and_kwargs`, "
            "trainer_optimizer.py `_setup_low_rank_optimizer`: raises for a layer-wise optimizer "
            "with gradient accumulation, and with more than one process"
        ),
        "llamafactory 0.9.5 hparams/parser.py: Layer-wise BAdam only supports DeepSpeed ZeRO-3",
    ),
    check=_check,
)
