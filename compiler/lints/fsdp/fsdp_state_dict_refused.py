"""A form of checkpoint that FSDP does not have."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.fsdp.asked import asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NAMES: Final = ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT", "1", "2", "3")


def _check(run: Run) -> Iterator[Finding]:
    for each in asked(run):
        place = each.get("state_dict_type")
        if place is None:
            continue
        value = str(place.value).upper()
        if value not in _NAMES:
            yield Finding(
                f"state_dict_type {place.value} is none",
                (place.label("refused"),),
                (f"the types are {', '.join(_NAMES[:3])}",),
                "write SHARDED_STATE_DICT or FULL_STATE_DICT",
            )
        elif each.version == 2 and value in ("LOCAL_STATE_DICT", "2"):
            yield Finding(
                "FSDP2 has no LOCAL_STATE_DICT",
                (place.label("refused"), each.on.label("", primary=False)),
                (),
                "write SHARDED_STATE_DICT",
                Fix((place.replaced("SHARDED_STATE_DICT"),), "unsafe"),
            )


RULE = Rule(
    name="fsdp-state-dict-refused",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py "
            "`FullyShardedDataParallelPlugin.set_state_dict_type`: StateDictType[name]; FSDP2 does "
            "not support LOCAL_STATE_DICT"
        ),
    ),
    check=_check,
)
