"""The best model is to be loaded at the end, and Axolotl turns that off for want of an interval."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_INTERVALS: Final = (("save_steps", "saves_per_epoch"), ("eval_steps", "evals_per_epoch"))


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        at = document.get("load_best_model_at_end")
        lacks = _lacking(document) if at is not None and at.value is True else None
        if at is None or lacks is None or document.get("rl") is not None:
            continue
        other = document.get("save_strategy") or document.get("eval_strategy")
        yield Finding(
            f"load_best_model_at_end is turned off without {lacks}",
            (at.label("becomes False"), *([other.label("", primary=False)] if other else [])),
            ("Axolotl passes it on only where both intervals are set and there is data to judge",),
            f"write {lacks}",
        )


def _lacking(document: Document) -> str | None:
    """What is not there of the intervals in steps, and of data to evaluate on."""
    for keys in _INTERVALS:
        if not any(document.value(key) or key in document.unknown for key in keys):
            return " or ".join(keys)
    has_split = document.value("val_set_size", 0) or "val_set_size" in document.unknown
    return None if has_split or document.value("test_datasets") else "val_set_size or test_datasets"


RULE = Rule(
    name="best-model-not-loaded",
    severity="warning",
    consequence="silent",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 core/trainer_builder.py, 0.13.2 and 0.19.0 core/builders/causal.py: "
            "load_best_model_at_end and (val_set_size or test_datasets) and save_steps and "
            "eval_steps, or False"
        ),
    ),
    check=_check,
)
