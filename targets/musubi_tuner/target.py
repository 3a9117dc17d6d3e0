"""kohya-ss/musubi-tuner: `--config_file`, the data config, and command lines, which are only read.

A config's keys are the flags; a section's name has no meaning. Flags override the config.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.target import Json
from tunec.targets.musubi_tuner import data
from tunec.targets.musubi_tuner.migration import LEAVES
from tunec.targets.musubi_tuner.packages import PACKAGE, RELEASES, SUPPORTED
from tunec.targets.musubi_tuner.rows import ROWS
from tunec.targets.scripts.flag_files import config_and_command, data_file, target_of

_OWN: Final = frozenset(
    {
        *("dataset_config", "network_module", "network_dim", "max_train_epochs", "output_name"),
        *("timestep_sampling", "discrete_flow_shift", "blocks_to_swap", "fp8_base", "fp8_scaled"),
        *("max_data_loader_n_workers", "persistent_data_loader_workers", "save_every_n_epochs"),
        *("optimizer_args", "weighting_scheme", "vae", "gradient_checkpointing_cpu_offload"),
    }
)
"""Flags that few other programs have; only musubi-tuner names its model by `dit`."""
_LEAST: Final = 2


def _is_config(document: Json) -> bool:
    """Whether keys are flags of a training script: the weights of a DiT, and some others."""
    keys = frozenset(document) if isinstance(document, Mapping) else frozenset()
    return "dit" in keys and len(_OWN & keys) >= _LEAST


def _foreign(found: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """What the new run takes from another place."""
    if "dit" in found:
        why = "a file of weights; the new run takes those of the model's own repository"
        yield "dit", why
    if "network_module" in found:
        why = "every linear layer of the blocks is adapted, and in the new run those that it names"
        yield "network_module", why


_CONFIG, _COMMAND = config_and_command(PACKAGE, RELEASES, ROWS, _is_config, LEAVES, _foreign)
_DATA: Final = data_file(PACKAGE, data.ROWS, data.recognise, data.LEAVES)
TARGET: Final = target_of(PACKAGE, SUPPORTED, RELEASES, (_COMMAND, _CONFIG, _DATA))
"""The target for training scripts of kohya-ss/musubi-tuner."""
