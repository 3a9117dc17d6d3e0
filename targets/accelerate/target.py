"""The accelerate target: a file for `accelerate launch --config_file`, for any training script."""

from typing import Final

from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Cannot, Target, on_deepspeed
from tunec.targets.accelerate.config import ACCELERATE_CONFIG
from tunec.targets.accelerate.deepspeed import section_defaults
from tunec.targets.accelerate.packages import ACCELERATE, PACKAGE
from tunec.targets.delegation import IDLE_DEVICES, by_launcher, by_trainer

_SAID: Final = ("parallel.engine", "parallel.world", "parallel.sequence")
"""Slots that the file sets in every plan."""

_CANNOT: Final = {
    **{slot: by_trainer() for slot in SLOTS if slot not in _SAID},
    **{
        f"zero.{name}": Cannot("ds_config.json says it", elsewhere=on_deepspeed)
        for name in ("stage", "gather_on_save")
    },
    **{slot: Cannot("another engine is used") for slot in SLOTS if slot.startswith("fsdp.")},
    **IDLE_DEVICES,
    "devices.visible": by_launcher(),
    "precision.deprecated_fp16": by_launcher(),
    "launch.launcher": Cannot("whoever reads the file is the launcher"),
    "launch.environment": by_launcher(),
    "launch.script": by_launcher(),
}

TARGET: Final = Target(
    name="accelerate",
    package=PACKAGE,
    supported=ACCELERATE.supported,
    latest=ACCELERATE.latest,
    releases=ACCELERATE.releases,
    files=(ACCELERATE_CONFIG,),
    cannot=_CANNOT,
    requires={"launch.launcher": "accelerate"},
    together=section_defaults,
    takes_fsdp=True,
    verify="tunec.targets.accelerate.verify",
)
