"""A layer pattern is given, and no layers."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.adapter.lora import adapters
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for lora in adapters(run):
        at, target = lora.place("layers_pattern"), lora.place("target_modules")
        if at is None or not at.value or lora.place("layers_to_transform") is not None:
            continue
        if lora.document.kind != "axolotl" and run.runs("peft>=0.15") is False:
            continue
        if target is not None and isinstance(target.value, str):
            continue  # refused for a reason of its own
        yield Finding(
            "layers_pattern is written without layers_to_transform",
            (at.label("refused"),),
            ("the pattern only says under which name the layers are counted",),
            "remove it, or say which layers",
            Fix((at.removed(),), "safe"),
        )


RULE = Rule(
    name="layers-pattern-alone",
    severity="error",
    consequence="parse",
    consumers=("peft>=0.15", "axolotl>=0.8"),
    sources=(
        (
            "peft 0.15.2 to 0.21.2 tuners/lora/config.py `LoraConfig.__post_init__`: When "
            "`layers_pattern` is specified, `layers_to_transform` must also be specified; 0.13.2 "
            "does not ask"
        ),
        "axolotl 0.8.1 to 0.19.0 utils/schemas/validation.py `check_peft_layers_pattern`",
    ),
    check=_check,
)
