"""RTX 40 cards without the switches that old drivers need."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import launches, variable
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SWITCHES: Final = ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")
_WHY: Final = (
    "accelerate then stops with an error; `accelerate launch` sets both by itself, newer drivers "
    "need neither"
)


def _check(run: Run) -> Iterator[Finding]:
    devices = run.environment.devices.values()
    card = next((each for each in devices if "RTX 40" in each.title), None)
    cluster = run.environment.cluster
    if card is None or cluster is None or cluster.device_count < 2:
        return
    for document in launches(run, "torchrun", "deepspeed"):
        missing = [name for name in _SWITCHES if variable(document, name) is None]
        place = document.get("launcher")
        if not missing or place is None or not run.of("trainer", "accelerate"):
            continue
        yield Finding(
            f"{card.title} without {' and '.join(missing)}, under a driver before 550.40.07",
            (place.label("passes the environment on as it is"),),
            (_WHY,),
            f"export {' '.join(f'{name}=1' for name in missing)}, or update the driver",
            certain=False,
        )


RULE = Rule(
    name="peer-access-on-rtx-40",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 state.py `PartialState.__init__`; utils/environment.py "
            "`check_cuda_p2p_ib_support`: driver 550.40.07"
        ),
    ),
    check=_check,
)
