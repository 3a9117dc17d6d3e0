"""A checkpoint of FSDP 2 holds the part of the adapter that lies on the first process."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FULL: Final = ("FULL_STATE_DICT", "1")


def _check(run: Run) -> Iterator[Finding]:
    if run.runs("accelerate<1.15") is not True or not run.of("trainer"):
        return
    if run.value("adapter.kind", "none") == "none":
        return
    only = run.said("trainer", "save_only_model")
    if only is not None and only.value is True:
        return
    for each in asked(run):
        place = each.get("state_dict_type")
        if each.version != 2 or place is None or str(place.value).upper() not in _FULL:
            continue
        yield Finding(
            "a checkpoint of FSDP 2 holds rank 0's part of the adapter only",
            (place.label("the other parts are not gathered"),),
            (
                "a run that resumes begins with new values for the parts of all other processes",
                "the model that is saved at the end is whole",
            ),
            "write SHARDED_STATE_DICT, or use accelerate 1.15",
        )


RULE = Rule(
    name="fsdp-adapter-of-one-rank",
    severity="error",
    consequence="resume",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 1.10.1 and 1.14.0 utils/fsdp_utils.py `_get_model_state_dict`, "
            "`_set_model_state_dict`: an adapter's is peft's own, which gathers nothing; 1.15.0: "
            "get_model_state_dict with ignore_frozen_params"
        ),
        (
            "transformers 4.57.1 trainer.py, 5.23.0 distributed/fsdp.py: adapter_only wherever "
            "`save_fsdp_model` takes it"
        ),
        "huggingface/accelerate#4206",
    ),
    check=_check,
)
