"""A key of DeepSpeed at another level than the one where it is looked up."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.keys.known import BF16_SCALING, homes_of, is_whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import faults


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        if not is_whole(document):
            continue
        for fault in faults(run, document):
            homes = homes_of(run, fault.path)
            if fault.what != "unknown" or not homes or fault.path in BF16_SCALING:
                continue
            # a block drops "auto" before it looks at its keys
            is_refused = fault.is_refused and fault.place.value != "auto"
            yield Finding(
                f"`{fault.path}` is not where DeepSpeed looks for it",
                (fault.place.key_label("refused here" if is_refused else "ignored here"),),
                (f"by the keys of {run.release('deepspeed')}",),
                f"it belongs at {quoted(homes)}",
                consequence="init" if is_refused else "silent",
            )


RULE = Rule(
    name="misplaced-key",
    severity="error",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `DeepSpeedConfig._initialize_params`, "
            "runtime/config_utils.py `DeepSpeedConfigModel`"
        ),
        "deepspeedai/DeepSpeed#2721",
    ),
    check=_check,
)
