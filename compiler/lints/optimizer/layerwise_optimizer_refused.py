"""A layer-wise optimizer where gradients are to be gathered first."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
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
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `get_optimizer_cls_and_kwargs`, "
            "trainer_optimizer.py `_setup_low_rank_optimizer`: raises for a layer-wise optimizer "
            "with gradient accumulation, and with more than one process"
        ),
    ),
    check=_check,
)
