"""Accumulation is given to the trainer and to accelerate's own configuration."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    inner = run.said("trainer", "accelerator_config.gradient_accumulation_kwargs.num_steps")
    outer = run.said("trainer", "gradient_accumulation_steps")
    if inner is None or outer is None or not is_whole(outer.value) or outer.value <= 1:
        return
    yield Finding(
        f"gradient_accumulation_steps is {outer.value}, and accelerator_config says num_steps "
        f"{inner.value}",
        (inner.label("refused beside the other"), outer.label("", primary=False)),
        ("the trainer takes one of the two, and does not know which is meant",),
        "remove num_steps",
        Fix((inner.removed(),), "unsafe"),
    )


RULE = Rule(
    name="accumulation-given-twice",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `create_accelerator_and_postprocess`: "
            "ValueError, the `AcceleratorConfig`'s `num_steps` is set but "
            "`gradient_accumulation_steps` is greater than 1"
        ),
    ),
    check=_check,
)
