"""The timestep shift of flow matching is given, and is to be found by itself."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.diffusion.asked import amount, configs, is_on, said
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        auto, shift = (
            said(document, "flow_schedule_auto_shift"),
            said(document, "flow_schedule_shift"),
        )
        if auto is None or not is_on(auto):
            continue
        amount_ = amount(shift) if shift is not None else 3.0
        if amount_ is None or amount_ <= 0:
            continue
        yield Finding(
            f"flow_schedule_auto_shift cannot stand beside a flow_schedule_shift of {amount_:g}",
            (
                auto.label("refused"),
                *([shift.label("", primary=False)] if shift is not None else []),
            ),
            () if shift is not None else ("flow_schedule_shift is 3 where nobody says it",),
            "write flow_schedule_shift: 0",
            Fix((shift.replaced(0),), "safe") if shift is not None else None,
        )


RULE = Rule(
    name="flow-shift-given-twice",
    severity="error",
    consequence="init",
    consumers=("simpletuner<3.2",),
    sources=(
        (
            "simpletuner 3.1.6 helpers/training/default_settings/safety_check.py: "
            "--flow_schedule_auto_shift cannot be combined with --flow_schedule_shift; "
            "cmd_args.py: its default is 3; 4.10.1 takes the pair"
        ),
    ),
    check=_check,
)
