"""Classes to wrap are listed with a blank behind the comma, which stays part of the name."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = (
    ("accelerate", "fsdp_config.fsdp_transformer_layer_cls_to_wrap"),
    ("trainer", "fsdp_config.transformer_layer_cls_to_wrap"),
    ("trainer", "fsdp_config.fsdp_transformer_layer_cls_to_wrap"),
    ("trainer", "fsdp_transformer_layer_cls_to_wrap"),
    ("axolotl", "fsdp_config.fsdp_transformer_layer_cls_to_wrap"),
    ("axolotl", "fsdp_config.transformer_layer_cls_to_wrap"),
)


def _check(run: Run) -> Iterator[Finding]:
    for kind, key in _KEYS:
        for document in run.of(kind):
            at = document.get(key)
            if document.is_view or at is None or not isinstance(at.value, str):
                continue
            names = at.value.split(",")
            blank = next((each for each in names if each != each.strip() and each.strip()), None)
            if blank is None or len(names) < 2:
                continue
            plain = ",".join(each.strip() for each in names)
            yield Finding(
                f"the list of classes to wrap has a blank: {blank!r} is looked for",
                (at.label("split at the commas alone"),),
                ("Could not find the transformer layer class in the model",),
                f"write {plain}",
                Fix((at.replaced(plain),), "safe"),
            )


RULE = Rule(
    name="fsdp-class-with-a-blank",
    severity="error",
    consequence="init",
    consumers=("accelerate", "transformers"),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `FullyShardedDataParallelPlugin`: "
            "FSDP_TRANSFORMER_CLS_TO_WRAP, split(','); `set_auto_wrap_policy`: Could not find the "
            "transformer layer class"
        ),
        "huggingface/accelerate#2872",
    ),
    check=_check,
)
