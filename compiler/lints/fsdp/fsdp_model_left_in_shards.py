"""Training ends without a model that from_pretrained can load."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SHARDS: Final = ("SHARDED_STATE_DICT", "LOCAL_STATE_DICT")


def _check(run: Run) -> Iterator[Finding]:
    saves = run.said("trainer", "save_only_model")
    if not run.of("trainer") or (saves is not None and saves.value is True):
        return
    for each in asked(run):
        place = each.get("state_dict_type")
        if place is None or str(place.value).upper() not in _SHARDS or each.who == "axolotl":
            continue
        yield Finding(
            f"with {place.value} the trainer saves shards, and no model at the end",
            (place.label("nothing to load with from_pretrained"),),
            (
                "save_model writes weights for FULL_STATE_DICT only; checkpoints hold shards",
                "accelerate merge-weights makes a model of a checkpoint's shards",
            ),
            "write FULL_STATE_DICT, or merge the shards after training",
            Fix((place.replaced("FULL_STATE_DICT"),), "unsafe"),
        )


RULE = Rule(
    name="fsdp-model-left-in-shards",
    severity="warning",
    consequence="save",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `save_model`: where FSDP is on, only if "
            "FULL_STATE_DICT is in state_dict_type"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 utils/fsdp_utils.py `save_fsdp_model`, "
            "`merge_fsdp_weights`: a folder pytorch_model_fsdp_0 of shards"
        ),
        "huggingface/transformers#30491",
    ),
    check=_check,
)
