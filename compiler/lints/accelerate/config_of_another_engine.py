"""An engine is configured, and another one is started."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.accelerate.counted import engine
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OF: Final[Mapping[str, str]] = {
    "deepspeed_config": "DEEPSPEED",
    "fsdp_config": "FSDP",
    "megatron_lm_config": "MEGATRON_LM",
}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        kind = engine(document)
        yield from _of_precision(document)
        for key, name in _OF.items():
            config = document.get(key)
            if kind is None or config is None or not config.node.fields or kind.value == name:
                continue
            yield Finding(
                f"{key} is not read with distributed_type {kind.value}",
                (config.key_label("not read"), kind.label("started", primary=False)),
                (),
                f"write distributed_type: {name}, or remove {key}",
                Fix((kind.replaced(name),), "unsafe"),
            )


def _of_precision(document: Document) -> Iterator[Finding]:
    """The recipe of fp8, which is read with that precision alone."""
    recipe, precision = document.get("fp8_config"), document.get("mixed_precision")
    if recipe is None or not recipe.node.fields or precision is None or document.is_view:
        return
    if str(precision.value).lower() not in ("fp8", "none"):
        yield Finding(
            f"fp8_config is not read with mixed_precision {precision.value}",
            (recipe.key_label("not read"), precision.label("", primary=False)),
            (),
            "write mixed_precision: fp8, or remove fp8_config",
            Fix((precision.replaced("fp8"),), "unsafe"),
        )


RULE = Rule(
    name="config-of-another-engine",
    severity="warning",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`: "
            "use_deepspeed, use_fsdp and use_megatron_lm come from distributed_type; "
            "utils/launch.py `setup_fp8_env`: only where mixed_precision is fp8"
        ),
    ),
    check=_check,
)
