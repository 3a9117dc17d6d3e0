"""A block of ds_config.json that is looked into, and does not say whether it is turned on."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BLOCKS: Final = ("amp", "progressive_layer_drop")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        for name in _BLOCKS:
            block = document.get(name)
            if block is None or block.node.fields is None or "enabled" in block.node.fields:
                continue
            yield Finding(
                f"`{name}` has no `enabled`, which DeepSpeed asks for",
                (block.key_label("refused"),),
                ("KeyError: 'enabled'",),
                f"write {name}.enabled, or remove {name}",
            )


RULE = Rule(
    name="block-without-its-switch",
    severity="error",
    consequence="init",
    consumers=("deepspeed<0.19",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.18.9 runtime/config.py `get_amp_params`, `get_pld_params`: "
            'pop("enabled") of a copy of the block; 0.19 refuses both blocks by name'
        ),
    ),
    check=_check,
)
