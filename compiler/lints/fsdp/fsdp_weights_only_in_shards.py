"""Only the weights are to be saved, and they are saved in shards."""

from collections.abc import Iterator

from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    only = run.said("trainer", "save_only_model")
    if only is None or only.value is not True:
        return
    for each in asked(run):
        place = each.get("state_dict_type")
        if place is not None and str(place.value).upper() in ("SHARDED_STATE_DICT", "3"):
            yield Finding(
                "save_only_model with SHARDED_STATE_DICT is refused",
                (only.label("refused"), place.label("", primary=False)),
                ("shards are saved with what resumes them, or not at all",),
                "write FULL_STATE_DICT, or drop save_only_model",
            )


RULE = Rule(
    name="fsdp-weights-only-in-shards",
    severity="error",
    consequence="init",
    consumers=("transformers>=4.51",),
    sources=(
        (
            "transformers 4.51.3 to 5.23.0 trainer.py: ValueError, save_only_model option is not "
            "compatible with FSDP state dict type 'SHARDED_STATE_DICT'"
        ),
    ),
    check=_check,
)
