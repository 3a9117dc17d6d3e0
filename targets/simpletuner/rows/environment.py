"""config.env beside config.json: what `simpletuner train` passes to `accelerate launch`.

The launcher does not read config.json. It reads the command line, the shell, or
`config/config.env`, which is loaded into the environment whatever the format of the configuration
(`load_env_variables` in helpers/configuration/loader.py). Both files must agree.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, Json, named, on_deepspeed
from tunec.targets.accelerate.ranks import counted, leaves_devices_idle, uses_every_device
from tunec.targets.simpletuner.rows.model import MIXED_PRECISION
from tunec.targets.simpletuner.rows.run import RANKS, processes

LAUNCHER: Final = "simpletuner 3.1.6 cli.py and 4.10.1 cli/train.py, run_training"

PASSED_ON: Final = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "DS_ALLOW_DEPRECATED_FP16")
"""Variables of a plan that the file can hold, as they need no quotes."""


def _write_processes(plan: Plan) -> Mapping[str, Json]:
    return {
        "TRAINING_NUM_PROCESSES": plan.parallel.world,
        "TRAINING_NUM_MACHINES": counted(plan)[0],
    }


def _read_processes(found: Mapping[str, Json]) -> Mapping[str, Any]:
    world = int(found.get("TRAINING_NUM_PROCESSES", 1))
    return processes(world, int(found.get("TRAINING_NUM_MACHINES", 1)))


def _read_ranks(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return dict.fromkeys(RANKS, int(found.get("TRAINING_NUM_PROCESSES", 1)))


def _write_variables(plan: Plan) -> Mapping[str, Json]:
    return {name: value for name, value in plan.launch.environment if name in PASSED_ON}


def _read_variables(found: Mapping[str, Json]) -> Mapping[str, Any]:
    visible = str(found.get("CUDA_VISIBLE_DEVICES", ""))
    return {
        "launch.environment": tuple((name, str(value)) for name, value in found.items()),
        "devices.visible": tuple(visible.split(",")) if visible else (),
    }


ENVIRONMENT: Final = (
    named("MIXED_PRECISION", "precision.compute", MIXED_PRECISION, LAUNCHER, default="bf16"),
    Entry(
        ("TRAINING_NUM_PROCESSES", "TRAINING_NUM_MACHINES"),
        tuple(processes(1, 1)),
        _write_processes,
        _read_processes,
        LAUNCHER,
        absent=((ALWAYS, processes(1, 1)),),
        when=uses_every_device,
    ),
    Entry(
        ("TRAINING_NUM_PROCESSES", "TRAINING_NUM_MACHINES"),
        RANKS,
        _write_processes,
        _read_ranks,
        LAUNCHER,
        absent=((ALWAYS, dict.fromkeys(RANKS, 1)),),
        when=leaves_devices_idle,
    ),
    Entry(
        PASSED_ON,
        ("launch.environment", "devices.visible"),
        _write_variables,
        _read_variables,
        "helpers/configuration/loader.py load_env_variables",
        absent=((ALWAYS, {"launch.environment": (), "devices.visible": ()}),),
    ),
    Entry(
        ("DS_ALLOW_DEPRECATED_FP16",),
        ("precision.deprecated_fp16",),
        lambda plan: {"DS_ALLOW_DEPRECATED_FP16": "1"} if plan.precision.deprecated_fp16 else {},
        lambda found: {"precision.deprecated_fp16": str(found["DS_ALLOW_DEPRECATED_FP16"]) == "1"},
        "deepspeed/accelerator/cuda_accelerator.py is_fp16_supported",
        absent=((ALWAYS, {"precision.deprecated_fp16": False}),),
        when=on_deepspeed,
    ),
)


def render(values: Mapping[str, Json], header: Sequence[str]) -> str:
    """`NAME=value` lines; `parse_env_file` strips quotes and folds blanks, so there are none."""
    comments = [f"# {line}" for line in header]
    return "".join(f"{line}\n" for line in [*comments, *(f"{k}={v}" for k, v in values.items())])


def parse(text: str) -> Mapping[str, str]:
    """The variables of a config.env, as `parse_env_file` reads them.

    helpers/configuration/env_file.py of 3.1.6 and 4.10.1.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        said = line.strip().removeprefix("export ")
        if said.startswith("#") or "=" not in said:
            continue
        joins = "+=" in said
        name, _, value = said.partition("+=" if joins else "=")
        words = " ".join(_unquoted(value.strip()).split())
        name = name.strip()
        found[name] = f"{found[name]} {words}" if joins and name in found else words
    return found


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value


_OWN: Final = frozenset(
    {
        *("MODEL_FAMILY", "MODEL_TYPE", "BASE_MODEL_PRECISION", "DATALOADER_CONFIG"),
        *("DATA_BACKEND_CONFIG", "TRAINER_EXTRA_ARGS", "MAX_NUM_STEPS", "VALIDATION_RESOLUTION"),
    }
)
"""helpers/configuration/env_file.py `env_to_args_map` of 3.1.6 and 4.10.1: no other program has two
of these."""


def recognise(document: Json) -> bool:
    """Whether a document holds the launcher's variables, or several of the trainer's own."""
    names = ("TRAINING_NUM_PROCESSES", "TRAINING_NUM_MACHINES", "TRAINING_DYNAMO_BACKEND")
    if not isinstance(document, Mapping):
        return False
    return any(name in document for name in names) or len(_OWN & document.keys()) > 1
