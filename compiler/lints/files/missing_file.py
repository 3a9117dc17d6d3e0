"""A file that another one names is not there."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Missing, Run


def _check(run: Run) -> Iterator[Finding]:
    for each in run.missing:
        if each.place.path.endswith("hostfile"):
            yield _no_hosts(each)
            continue
        yield Finding(
            f"{each.path} cannot be read: {each.why}",
            (each.place.label("named here"),),
            (
                (
                    "looked for beside this file, in the directories around it, and where tunec "
                    "was started"
                ),
            ),
            "give the file, or run tunec where the training is started",
        )


def _no_hosts(each: Missing) -> Finding:
    return Finding(
        f"{each.path} cannot be read: {each.why}",
        (each.place.label("named here"),),
        ("the deepspeed launcher goes on without it, and starts this node's devices alone",),
        "give the file, or run tunec where the training is started",
        consequence="silent",
    )


RULE = Rule(
    name="missing-file",
    severity="warning",
    consequence="parse",
    consumers=("transformers", "accelerate", "deepspeed"),
    sources=(
        (
            "transformers 5.23.0 integrations/deepspeed.py, accelerate 1.15.0 utils/deepspeed.py "
            "`HfDeepSpeedConfig.__init__`: expected a path to an existing deepspeed config"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `fetch_hostfile`: Unable to find "
            "hostfile, will proceed with training with local resources only"
        ),
    ),
    check=_check,
)
