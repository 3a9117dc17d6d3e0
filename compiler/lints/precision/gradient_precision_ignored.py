"""SimpleTuner's gradient_precision, which no optimizer heeds."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for place in run.each("simpletuner", "gradient_precision"):
        if place.value != "fp32":
            continue
        yield Finding(
            "gradient_precision fp32 does nothing",
            (place.label("set back to unmodified"),),
            ("it holds only for optimizers that declare it, and none does",),
            "remove it",
            Fix((place.removed(),), "safe") if place.document.format == "json" else None,
        )


RULE = Rule(
    name="gradient-precision-ignored",
    severity="warning",
    consequence="silent",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py `parse_cmdline_args`: "
            'args.gradient_precision = "unmodified" unless `is_optimizer_grad_fp32`'
        ),
        "bghira/SimpleTuner 2ac3e0996: remove recommendation for gradient_precision",
    ),
    check=_check,
)
