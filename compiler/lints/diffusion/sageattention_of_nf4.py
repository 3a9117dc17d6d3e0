"""SageAttention is asked for over an nf4 base."""

from collections.abc import Iterator

from tunec.compiler.lints.diffusion.asked import configs, said, word
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        at, base = said(document, "attention_mechanism"), said(document, "base_model_precision")
        if (
            at is None
            or base is None
            or "sageattention" not in word(document, "attention_mechanism")
        ):
            continue
        if "nf4" in word(document, "base_model_precision"):
            yield Finding(
                f"{at.value} does not run over a base in {base.value}",
                (at.label("refused"), base.label("", primary=False)),
                (),
                "quantise to int8 or fp8, or use another attention",
            )


RULE = Rule(
    name="sageattention-of-nf4",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/training/default_settings/safety_check.py: is "
            "not supported with SageAttention"
        ),
    ),
    check=_check,
)
