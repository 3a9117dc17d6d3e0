"""Checkpoints at stage 3 hold no weights that anything else can load."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import has_adapter
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.gathering import ungathered


def _check(run: Run) -> Iterator[Finding]:
    if has_adapter(run):
        return
    found = ungathered(
        run,
        "checkpoints of stage 3 hold shards only: the 16-bit weights are not gathered on save",
        "weights stay in shards",
        "zero_to_fp32.py recovers the weights from the shards, from_pretrained cannot",
    )
    if found is not None:
        yield found


RULE = Rule(
    name="weights-not-gathered-on-save",
    severity="warning",
    consequence="save",
    consumers=(
        "deepspeed",
        "transformers",
    ),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `save_model`: "
            "stage3_gather_16bit_weights_on_model_save=false. Saving the full checkpoint instead"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 accelerator.py `get_state_dict`: ValueError, Cannot get "
            "16bit model weights"
        ),
    ),
    check=_check,
)
