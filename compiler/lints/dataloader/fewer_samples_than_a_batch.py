"""There are fewer samples than one step takes."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_whole, trainer_batch
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    limit, batch, world = _most(run), trainer_batch(run), run.data_parallel
    if limit is None or batch is None or world is None:
        return
    place, samples = limit
    micro, steps = (each.value for each in batch)
    drop = run.effective("trainer", "dataloader_drop_last")
    if drop.value is True and samples < micro * world:
        yield _finding(place, samples, (micro, 1, world), drop.place)
    elif samples < micro * steps * world:
        yield _finding(place, samples, (micro, steps, world), None)


def _most(run: Run) -> tuple[Place, int] | None:
    """The most samples there can be: a limit for each data set, or of all."""
    place = run.said("llamafactory", "max_samples") or run.said("hf", "max_train_samples")
    if place is None or not is_whole(place.value) or place.value < 1:
        return None
    names = run.said("llamafactory", "dataset")
    if place.path == "max_samples":
        sets = _count(None if names is None else names.value)
        return (place, place.value * sets) if sets else None
    return place, place.value


def _count(names: object) -> int:
    if isinstance(names, str):
        return len(names.split(","))
    return len(names) if isinstance(names, list) else 0


def _finding(
    place: Place, samples: int, factors: tuple[int, int, int], drop: Place | None
) -> Finding:
    micro, steps, world = factors
    product = micro * steps * world
    return Finding(
        f"at most {samples} samples, and one {'batch' if drop else 'step'} takes {product}",
        (
            place.label("at most"),
            *([drop.label("drops the rest", primary=False)] if drop is not None else []),
        ),
        (
            "the only batch is dropped, and no step is left"
            if drop
            else "an epoch is one step, on fewer samples than the batch says",
        ),
        "use more samples, or a smaller batch",
        sum=(
            Term("micro batch", micro, "samples"),
            Term("accumulation", steps, "micro batches"),
            Term("data parallel", world, "processes"),
        ),
        severity=None if drop else "warning",
        consequence=None if drop else "silent",
    )


RULE = Rule(
    name="fewer-samples-than-a-batch",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.23.0 trainer.py `set_initial_training_values`: ValueError, "
            "args.max_steps "
            "must be set to a positive value if dataloader does not have a length, for an empty one"
        ),
        "llamafactory 0.9.1 to 0.9.5 data/loader.py: max_samples of each data set",
    ),
    check=_check,
)
