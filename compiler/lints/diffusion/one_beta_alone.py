"""One of the optimizer's two betas is given without the other."""

from collections.abc import Iterator

from tunec.compiler.lints.diffusion.asked import configs, said
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        found = [said(document, f"optimizer_beta{at}") for at in (1, 2)]
        present = [each for each in found if each is not None]
        if len(present) == 1:
            other = 2 if found[0] is not None else 1
            yield Finding(
                f"optimizer_beta{3 - other} is written without optimizer_beta{other}",
                (present[0].label("refused alone"),),
                (),
                f"write optimizer_beta{other} too",
            )


RULE = Rule(
    name="one-beta-alone",
    severity="error",
    consequence="parse",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py: Both "
            "--optimizer_beta1 and --optimizer_beta2 should be provided"
        ),
    ),
    check=_check,
)
