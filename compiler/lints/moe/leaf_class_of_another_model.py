"""The blocks that are to be leaves are of another model."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.moe.experts import BLOCKS, family
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEY: Final = "deepspeed_config.deepspeed_moe_layer_cls_names"


def _check(run: Run) -> Iterator[Finding]:
    own, known = BLOCKS.get(family(run)), frozenset(BLOCKS.values())
    if own is None:
        return
    for place in run.each("accelerate", _KEY):
        if not isinstance(place.value, str):
            continue
        for name in place.value.split(","):
            if name in known and name != own:
                yield Finding(
                    f"{family(run)} has no module of class {name}",
                    (place.label("refused"),),
                    (f"its experts are in {own}",),
                    f"write {own}",
                    Fix((place.replaced(own),), "safe") if place.value == name else None,
                )


RULE = Rule(
    name="leaf-class-of-another-model",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py "
            "`DeepSpeedPlugin.set_moe_leaf_modules`: Could not find a transformer layer class "
            "called"
        ),
    ),
    check=_check,
)
