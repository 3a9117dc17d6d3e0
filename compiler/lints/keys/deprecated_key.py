"""A key that DeepSpeed still reads, as another one."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BLOCK: Final = "zero_optimization"
_NEW: Final = {
    "cpu_offload": "offload_optimizer: {device: cpu}",
    "cpu_offload_param": "offload_param: {device: cpu}",
    "cpu_offload_use_pin_memory": "pin_memory, in offload_optimizer or offload_param",
    "stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save",
}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        for old, new in _NEW.items():
            place = document.get(f"{_BLOCK}.{old}")
            if place is None or document.is_view:
                continue
            is_renamed = ":" not in new and "," not in new
            is_unread = old == "cpu_offload_use_pin_memory"
            yield Finding(
                f"{old} is deprecated{': it is not read' if is_unread else ''}",
                (place.key_label("not read" if is_unread else "read as another key"),),
                (f"the key is {new} now",),
                f"write {new}",
                Fix((place.renamed(new),), "safe") if is_renamed else None,
            )


RULE = Rule(
    name="deprecated-key",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py `DeepSpeedZeroConfig`: fields with "
            "deprecated and new_param; runtime/config_utils.py `_process_deprecated_field`: a "
            "warning, and the value is the new field's; set_new_param False of "
            "cpu_offload_use_pin_memory"
        ),
    ),
    check=_check,
)
