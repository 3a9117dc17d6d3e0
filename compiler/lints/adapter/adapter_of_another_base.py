"""The adapter's base is another model than the run's."""

from collections.abc import Iterator
from typing import Any

from tunec.compiler.lints.adapter.lora import adapters
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    trained = _trained(run)
    for lora in adapters(run):
        at = lora.document.get("base_model_name_or_path")
        if lora.document.kind != "peft" or at is None or trained is None:
            continue
        if _are_others(at.value, trained.value):
            yield Finding(
                f"the adapter is for {at.value}, and the run trains {trained.value}",
                (at.label("the adapter's base"), trained.label("the run's", primary=False)),
                ("adapters of another model fit only if every shape does, and mean nothing",),
                "name one model in both",
            )


def _trained(run: Run) -> Place | None:
    for kind, key in (
        ("model", "model_name_or_path"),
        ("trainer", "model_name_or_path"),
        ("axolotl", "base_model"),
    ):
        for each in run.of(kind):
            if not each.is_view and (found := each.get(key)) is not None:
                return found
    return None


def _are_others(base: Any, trained: Any) -> bool:
    are_names = _is_repository(base) and _is_repository(trained)
    return are_names and str(base).lower() != str(trained).lower()


def _is_repository(value: Any) -> bool:
    is_text = isinstance(value, str) and value.count("/") == 1
    return is_text and not value.startswith((".", "/", "~")) and not value.endswith("/")


RULE = Rule(
    name="adapter-of-another-base",
    severity="warning",
    consequence="load",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 config.py `PeftConfig`: base_model_name_or_path; peft_model.py "
            "`from_pretrained` does not compare it with the model that it is given"
        ),
    ),
    check=_check,
)
