"""SimpleTuner is to train LoRA with DeepSpeed."""

from collections.abc import Iterator

from tunec.compiler.lints.diffusion.asked import configs, deepspeed_of, is_lora, said
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        kind = said(document, "model_type")
        if kind is None or not is_lora(document):
            continue
        at = deepspeed_of(run, document)
        if at is None:
            continue
        yield Finding(
            "SimpleTuner does not train LoRA with DeepSpeed",
            (at.label("turns DeepSpeed on"), kind.label("adapters", primary=False)),
            ("it ends with: LoRA can not be trained with DeepSpeed",),
            "remove deepspeed_config, or train the model itself (model_type full)",
        )


RULE = Rule(
    name="lora-with-deepspeed",
    severity="error",
    consequence="parse",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/error_handling.py "
            "`validate_deepspeed_compat_from_args`: sys.exit(1)"
        ),
        "bghira/SimpleTuner#2142",
    ),
    check=_check,
)
