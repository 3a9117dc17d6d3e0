"""An engine is configured, and another one is started."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.accelerate.counted import engine
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


RULE = Rule(
    name="config-of-another-engine",
    severity="warning",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`: "
            "use_deepspeed, use_fsdp and use_megatron_lm come from distributed_type"
        ),
    ),
    check=_check,
)
