"""A file that another one names is not there."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for each in run.missing:
        yield Finding(
            f"{each.path} cannot be read: {each.why}",
            (each.place.label("named here"),),
            (
                (
                    "looked for beside this file, in the directories around it, and where tunec "
                    "was "
                    "started"
                ),
            ),
            "give the file, or run tunec where the training is started",
        )


RULE = Rule(
    name="missing-file",
    severity="warning",
    consequence="parse",
    consumers=("transformers", "accelerate"),
    sources=(
        (
            "transformers 5.23.0 integrations/deepspeed.py, accelerate 1.15.0 utils/deepspeed.py "
            "`HfDeepSpeedConfig.__init__`: expected a path to an existing deepspeed config"
        ),
    ),
    check=_check,
)
