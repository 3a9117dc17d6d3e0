"""The trainer's norm for clipping does not reach DeepSpeed."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.keys.known import is_whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    asked = run.said("trainer", "max_grad_norm")
    if asked is None or not is_number(asked.value):
        return
    for document in run.of("deepspeed"):
        if document.get("gradient_clipping") or not is_whole(document):
            continue
        taken = run.effective("deepspeed", "gradient_clipping")
        if not taken.known or taken.value == asked.value:
            return
        added = None if document.is_view else document.added("gradient_clipping", "auto")
        yield Finding(
            f"max_grad_norm {asked.value} is unused: DeepSpeed clips to {taken.value or 'nothing'}",
            (asked.label("not used"), document.lacking("gradient_clipping")),
            (f"gradient_clipping is left out, and {taken.by} is {taken.value}",),
            'write "gradient_clipping": "auto" in the DeepSpeed file',
            Fix((added,), "safe") if added else None,
        )


RULE = Rule(
    name="clipping-left-out",
    severity="error",
    consequence="silent",
    consumers=(
        "deepspeed",
        "transformers",
    ),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 accelerator.py `clip_grad_norm_`: under DeepSpeed the "
            "engine clips, and the norm that is passed is not used"
        ),
        (
            "deepspeed 0.14.5 to 0.18.9 runtime/constants.py GRADIENT_CLIPPING_DEFAULT = 0.0; "
            "0.19.8: 1.0"
        ),
        (
            "transformers 5.23.0 integrations/deepspeed.py `trainer_config_process`: fill_match "
            "compares only keys that the file has"
        ),
    ),
    check=_check,
)
