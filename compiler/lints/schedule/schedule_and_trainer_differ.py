"""Steps in DeepSpeed's scheduler that are not the trainer's."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import total_steps, warmup_place, warmup_steps


def _check(run: Run) -> Iterator[Finding]:
    if not run.of("trainer"):
        return
    total = total_steps(run)
    ours = run.said("deepspeed", "scheduler.params.total_num_steps")
    if ours is not None and is_number(ours.value) and total and ours.value != total.value:
        yield _finding(ours, "max_steps", total.value, total.place)
    warm = run.said("deepspeed", "scheduler.params.warmup_num_steps")
    if warm is None or not is_number(warm.value):
        return
    theirs = warmup_steps(run, total.value if total else None)
    if theirs is not None and warm.value != theirs.value:
        yield _finding(warm, theirs.place.path, theirs.value, theirs.place)
    elif warmup_place(run) is None and _none_given(run) and warm.value not in (0, 1):
        yield _finding(warm, "warmup_steps", 0, run.said("trainer", "warmup_steps"))


def _none_given(run: Run) -> bool:
    """Whether no file says a warm-up, in a value that is known or not."""
    keys = ("warmup_steps", "warmup_ratio")
    documents = run.of("trainer")
    return not any(key in each.unknown for each in documents for key in keys)


def _finding(ours: Place, key: str, value: int, theirs: Place | None) -> Finding:
    name = ours.path.rpartition(".")[2]
    return Finding(
        f"{name} is {ours.value}, and the trainer's {key} comes to {value}",
        (
            ours.label("by DeepSpeed's file"),
            *([theirs.label("by the trainer", primary=False)] if theirs is not None else []),
        ),
        ("the trainer compares them when it knows all steps, and refuses to train",),
        f'write "{name}": "auto"',
    )


RULE = Rule(
    name="schedule-and-trainer-differ",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py "
            "`HfTrainerDeepSpeedConfig.trainer_config_finalize`: total_num_steps against "
            "num_training_steps, warmup_num_steps against get_warmup_steps"
        ),
        "hendrycks/apps#9",
    ),
    check=_check,
)
