"""DeepSpeed's activation checkpointing block under the HF Trainer, which never calls it."""

from collections.abc import Iterator

from tunec.compiler.lints.checkpointing.asked import recomputes
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS = ("partition_activations", "cpu_checkpointing", "contiguous_memory_optimization")


def _check(run: Run) -> Iterator[Finding]:
    if run.deepspeed_reader != "trainer" or not run.of("trainer", "axolotl"):
        return
    for document in run.of("deepspeed"):
        paths = [f"activation_checkpointing.{key}" for key in _KEYS]
        said = [each for path in paths if (each := document.get(path)) and each.value is True]
        if not said:
            continue
        names = ", ".join(each.path.rpartition(".")[2] for each in said)
        yield Finding(
            f"{names} does nothing under the Trainer",
            tuple(each.label("not called", primary=at == 0) for at, each in enumerate(said)),
            (
                (
                    "the block configures deepspeed.checkpointing, which a model has to call "
                    "itself; models of transformers call torch's checkpoint"
                ),
                *(() if recomputes(run) else ("nothing in this run is recomputed",)),
            ),
            "remove the block" + ("" if recomputes(run) else ", and set gradient_checkpointing"),
        )


RULE = Rule(
    name="deepspeed-checkpointing-ignored",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/activation_checkpointing/checkpointing.py "
            "`configure`, `checkpoint`: called by the model's code"
        ),
        "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py, modeling_utils.py: no call",
    ),
    check=_check,
)
