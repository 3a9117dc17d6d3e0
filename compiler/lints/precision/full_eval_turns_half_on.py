"""16-bit evaluation turns 16-bit training on, through `auto` in DeepSpeed's file."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for dtype in ("fp16", "bf16"):
        evaluated = run.effective("trainer", f"{dtype}_full_eval")
        trained = run.effective("trainer", dtype)
        block = run.said("deepspeed", f"{dtype}.enabled")
        if evaluated.value is not True or evaluated.place is None or trained.value is not False:
            continue
        if block is None or block.value != "auto":
            continue
        yield Finding(
            f"{dtype}_full_eval turns {dtype} training on",
            (
                evaluated.place.label("meant for evaluation"),
                block.label(f"filled from {dtype} or {dtype}_full_eval", primary=False),
            ),
            (f"the Trainer fills {dtype}.enabled with true, and DeepSpeed casts the whole model",),
            f"write false for {dtype}.enabled in the DeepSpeed file, or leave the evaluation as is",
        )


RULE = Rule(
    name="full-eval-turns-half-on",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `trainer_config_process`: "
            'fill_match("fp16.enabled", (args.fp16 or args.fp16_full_eval))'
        ),
    ),
    check=_check,
)
