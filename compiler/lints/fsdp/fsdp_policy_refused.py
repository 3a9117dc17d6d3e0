"""A policy of wrapping that the Trainer does not have under that name."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_POLICIES: Final = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")


def _check(run: Run) -> Iterator[Finding]:
    is_old = run.runs("transformers<=5.6.2")
    if is_old is True:
        return
    for each in asked(run):
        at = each.get("auto_wrap_policy")
        if each.who != "trainer" or at is None or at.value in _POLICIES:
            continue
        meant = str(at.value).upper()
        yield Finding(
            f"auto_wrap_policy {at.value} is no policy of the Trainer's",
            (at.label("refused"), each.on.label("", primary=False)),
            (
                f"the policies are {', '.join(_POLICIES)}, in capitals",
                *(("releases up to 5.6.2 do not read the key",) if is_old is None else ()),
            ),
            f"write {meant if meant in _POLICIES else _POLICIES[0]}",
            Fix((at.replaced(meant),), "safe") if meant in _POLICIES else None,
            severity="warning" if is_old is None else None,
        )


RULE = Rule(
    name="fsdp-policy-refused",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.10.1 to 5.23.0 training_args.py `_process_fsdp_args`: "
            "`auto_wrap_policy` must be one of; accelerate 1.15.0 utils/constants.py "
            "FSDP_AUTO_WRAP_POLICY"
        ),
    ),
    check=_check,
)
