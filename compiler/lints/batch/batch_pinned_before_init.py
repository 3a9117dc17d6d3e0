"""All three numbers of the batch are written in a file that is read before processes meet."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)


def _check(run: Run) -> Iterator[Finding]:
    values = [run.effective("deepspeed", key) for key in _KEYS]
    stage = run.effective("deepspeed", "zero_optimization.stage")
    numbers = [each.value for each in values if each.is_written and isinstance(each.value, int)]
    place = values[0].place
    if stage.value != 3 or len(numbers) < 3 or place is None or run.deepspeed_reader != "trainer":
        return
    total, micro, steps = numbers
    if total == micro * steps:
        return
    yield Finding(
        f"train_batch_size {total} is pinned at stage 3, where it is checked for 1 process first",
        (place.label(f"not {micro} x {steps} x 1"),),
        (
            (
                "from_pretrained hands the file to zero.Init; before the processes have met, "
                "DeepSpeed counts one"
            ),
        ),
        "leave train_batch_size out: DeepSpeed derives it",
        None if place.document.is_view else Fix((place.removed(),), "safe"),
    )


RULE = Rule(
    name="batch-pinned-before-init",
    severity="warning",
    consequence="load",
    consumers=("deepspeed", "transformers"),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `DeepSpeedConfig.__init__`: world_size "
            "is 1 where torch.distributed is not set up; transformers 5.23.0 modeling_utils.py: "
            "zero.Init"
        ),
        "Roblox/FAI-RL#72",
    ),
    check=_check,
)
