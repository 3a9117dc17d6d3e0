"""The accelerate target: the file of `accelerate launch --config_file`, for any training script."""

from typing import Final

from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Cannot, Target
from tunec.targets.accelerate.config import ACCELERATE_CONFIG
from tunec.targets.accelerate.packages import ACCELERATE, PACKAGE
from tunec.targets.accelerate.sections import section_defaults

_SCRIPT: Final = "the training script's own files say it"
_COMMAND: Final = "the launch command says it"
_SAID: Final = ("parallel.engine", "parallel.world", "parallel.sequence")
"""What the file says of every plan."""

_CANNOT: Final = {
    **{slot: Cannot(_SCRIPT) for slot in SLOTS if slot not in _SAID},
    **{f"zero.{name}": Cannot("ds_config.json says it") for name in ("stage", "gather_on_save")},
    **{slot: Cannot("another engine runs") for slot in SLOTS if slot.startswith("fsdp.")},
    "devices.nodes": Cannot("the plan leaves devices idle, and starts processes on the others"),
    "devices.per_node": Cannot("the plan leaves devices idle, and starts processes on the others"),
    "devices.visible": Cannot(_COMMAND),
    "precision.deprecated_fp16": Cannot(_COMMAND),
    "launch.launcher": Cannot("whoever reads the file is the launcher"),
    "launch.environment": Cannot(_COMMAND),
    "launch.script": Cannot(_COMMAND),
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
