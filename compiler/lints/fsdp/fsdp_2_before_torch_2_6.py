"""FSDP 2 with a release of torch that accelerate does not take it with."""

from collections.abc import Iterator

from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.runs("torch<2.6") is not True:
        return
    for each in asked(run):
        if each.version != 2 or each.who == "axolotl":
            continue
        at = each.get("version") or each.on
        yield Finding(
            f"FSDP 2 needs torch 2.6, and {run.release('torch')} runs",
            (at.label("version 2"),),
            ("accelerate: FSDP2 requires PyTorch >= 2.6.0",),
            "use a newer torch, or fsdp_version 1",
        )


RULE = Rule(
    name="fsdp-2-before-torch-2-6",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 1.6.0 to 1.15.0 utils/dataclasses.py "
            "`FullyShardedDataParallelPlugin.__post_init__`, utils/constants.py "
            "FSDP2_PYTORCH_VERSION"
        ),
    ),
    check=_check,
)
