"""The timestep shift of flow matching is given, and is to be found by itself."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.diffusion.asked import amount, configs, is_on, said
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_REFUSED: Final = "simpletuner<3.2"


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
        if run.runs(_REFUSED) is not True:
            if shift is not None:
                yield _unread(shift, auto)
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


def _unread(shift: Place, auto: Place) -> Finding:
    return Finding(
        f"flow_schedule_shift {shift.value} does nothing beside flow_schedule_auto_shift",
        (shift.label("set to 0"), auto.label("", primary=False)),
        ("the shift is found from the size of each sample; up to 3.1 the pair is refused",),
        "write flow_schedule_shift: 0, or remove flow_schedule_auto_shift",
        Fix((shift.replaced(0),), "safe"),
        severity="warning",
        consequence="silent",
    )


RULE = Rule(
    name="flow-shift-given-twice",
    severity="error",
    consequence="init",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 helpers/training/default_settings/safety_check.py: "
            "--flow_schedule_auto_shift cannot be combined with --flow_schedule_shift; "
            "cmd_args.py: its default is 3; 4.10.1 safety_check.py: args.flow_schedule_shift = 0"
        ),
    ),
    check=_check,
)
