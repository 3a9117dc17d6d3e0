"""kohya-ss/musubi-tuner: `--config_file`, the data's own file, and command lines, which are read.

A config's keys are the flags; a section's name means nothing. What the flags say goes before it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.target import Cannot, File, Json, Target, in_no_plan
from tunec.schemas.frozen import replace
from tunec.targets.musubi_tuner import data
from tunec.targets.musubi_tuner.migration import LEAVES
from tunec.targets.musubi_tuner.packages import PACKAGE, RELEASES, SUPPORTED
from tunec.targets.musubi_tuner.rows import ROWS
from tunec.targets.read_only import schema_of
from tunec.targets.scripts.file import own_script
from tunec.targets.trainers import training_denoisers

_OWN: Final = frozenset(
    {
        *("dataset_config", "network_module", "network_dim", "max_train_epochs", "output_name"),
        *("timestep_sampling", "discrete_flow_shift", "blocks_to_swap", "fp8_base", "fp8_scaled"),
        *("max_data_loader_n_workers", "persistent_data_loader_workers", "save_every_n_epochs"),
        *("optimizer_args", "weighting_scheme", "vae", "gradient_checkpointing_cpu_offload"),
    }
)
"""Flags that few other programs have; none but this one names its model by `dit`."""
_LEAST: Final = 3


def _is_config(document: Json) -> bool:
    """Whether keys are flags of a script that trains: the weights of a DiT, and some others."""
    keys = frozenset(document) if isinstance(document, Mapping) else frozenset()
    return "dit" in keys and len(_OWN & keys) >= _LEAST


def _names_config(document: Json) -> bool:
    return isinstance(document, Mapping) and "config_file" in document


def _foreign(found: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """What the new run takes from elsewhere."""
    if "dit" in found:
        why = "a file of weights; the new run takes those of the model's own repository"
        yield "dit", why
    if "network_module" in found:
        why = "every linear layer of the blocks is adapted, and in the new run those that it names"
        yield "network_module", why


_SCHEMA: Final = schema_of(PACKAGE, RELEASES, PACKAGE)
_CONFIG: Final = File(
    "musubi-tuner.toml",
    "json",
    ROWS,
    _is_config,
    _SCHEMA,
    when=in_no_plan,
    leaves=LEAVES,
    foreign=_foreign,
    names=("dataset_config",),
)
_COMMAND: Final = File(
    "musubi-tuner command",
    "json",
    tuple(replace(each, absent=()) for each in ROWS),
    _names_config,
    _SCHEMA,
    when=in_no_plan,
    leaves=LEAVES,
    names=("config_file", "dataset_config"),
    over=_CONFIG.name,
)
"""Flags beside a config, whose rows know what neither says. A flag wins: kohya-ss/musubi-tuner
0.3.4 training/parser_common.py `read_config_from_file` parses the command once more."""
_DATA: Final = File(
    "musubi-tuner dataset.toml",
    "json",
    data.ROWS,
    data.recognise,
    when=in_no_plan,
    leaves=data.LEAVES,
)
_CANNOT: Final[Mapping[str, Cannot]] = {
    **training_denoisers("musubi-tuner"),
    "launch.script": own_script("musubi-tuner"),
    "launch.launcher": Cannot("its scripts are started by accelerate", True, ("accelerate",)),
}

TARGET: Final = Target(
    name=PACKAGE,
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(_COMMAND, _CONFIG, _DATA),
    cannot=_CANNOT,
    run_by="simpletuner",
)
"""What the scripts of kohya-ss/musubi-tuner that train are given."""
