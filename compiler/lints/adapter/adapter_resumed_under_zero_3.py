"""The adapter of a run at stage 3 is to be loaded into its engine again."""

from collections.abc import Iterator

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import stage_of


def _check(run: Run) -> Iterator[Finding]:
    stage, loads = stage_of(run), _loads(run)
    if stage.value != 3 or stage.place is None or loads is None:
        return
    if run.value("adapter.kind", "none") == "none":
        return
    yield Finding(
        f"{loads.path} loads an adapter into shards of stage 3",
        (loads.label("loaded into the engine"), stage.place.label("", primary=False)),
        (
            "the engine loads its own shards, of the same number of processes only",
            "reported to end in size mismatches with sizes of 0",
        ),
        "use stage 2 where the frozen model fits, or load the best checkpoint in a run of its own",
    )


def _loads(run: Run) -> Place | None:
    """The key because of which a checkpoint is loaded into the engine."""
    best = run.said("trainer", "load_best_model_at_end")
    if best is not None and best.value is True:
        return best
    resumed = run.said("trainer", "resume_from_checkpoint")
    is_asked = resumed is not None and (resumed.value is True or isinstance(resumed.value, str))
    return resumed if is_asked and str(resumed and resumed.value).lower() not in _NO else None


_NO = ("", "false", "none", "null", "auto")
"""Words that ask for nothing, or whose meaning depends on what the folder holds."""


RULE = Rule(
    name="adapter-resumed-under-zero-3",
    severity="warning",
    consequence="resume",
    consumers=("transformers", "deepspeed"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `_load_best_model`, "
            "integrations/deepspeed.py `deepspeed_load_checkpoint`: `engine.load_checkpoint`, with "
            "load_module_strict false for PEFT"
        ),
        "deepspeedai/DeepSpeed#7436: size mismatch, got input (18944), mat (18944x8), vec (0)",
        "hiyouga/LlamaFactory#1226: resuming and load_best_model_at_end; wontfix",
    ),
    check=_check,
)
