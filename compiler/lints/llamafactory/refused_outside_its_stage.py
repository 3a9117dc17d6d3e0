"""An option that LLaMA-Factory takes in one stage only."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tunec.compiler.lints.fragments import is_fragment
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_ONLY_SFT: Final = ("neat_packing", "train_on_prompt", "mask_history", "predict_with_generate")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        stage = document.get("stage")
        if document.is_view or stage is None or stage.value == "sft":
            continue
        for key in _ONLY_SFT:
            at = document.get(key)
            if at is not None and at.value is True:
                yield _finding(at, f"{key} is refused in stage {stage.value}", stage)
        best = document.get("load_best_model_at_end")
        if stage.value in ("rm", "ppo") and best is not None and best.value is True:
            yield _finding(best, f"load_best_model_at_end is refused in stage {stage.value}", stage)
        if stage.value == "ppo" and document.get("reward_model") is None:
            found = _finding(stage, "stage ppo has no reward_model", None)
            yield replace(found, severity="warning") if is_fragment(document) else found
        pissa = document.get("pissa_init")
        if stage.value in ("ppo", "kto") and pissa is not None and pissa.value is True:
            yield _finding(pissa, f"pissa_init is refused in stage {stage.value}", stage)


def _finding(at: Place, message: str, stage: Place | None) -> Finding:
    return Finding(
        message,
        (
            at.label("refused" if stage is not None else "needs one"),
            *([stage.label("", primary=False)] if stage is not None else []),
        ),
        (),
        "remove it" if stage is not None else "name the reward model",
    )


RULE = Rule(
    name="refused-outside-its-stage",
    severity="error",
    consequence="parse",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 hparams/parser.py `get_train_args`: cannot be set as "
            "True except SFT; RM and PPO stages do not support `load_best_model_at_end`; "
            "hparams/finetuning_args.py `__post_init__`: `reward_model` is necessary for PPO "
            "training; Cannot use PiSSA for current training stage"
        ),
    ),
    check=_check,
)
