"""kohya-ss/sd-scripts: `--config_file`, the data config, and command lines, which are only read.

A config's keys are the flags; a section's name has no meaning. Flags override the config.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.target import Json
from tunec.targets.scripts.flag_files import config_and_command, data_file, target_of
from tunec.targets.sd_scripts import data
from tunec.targets.sd_scripts.migration import DATA_LEAVES, LEAVES
from tunec.targets.sd_scripts.packages import PACKAGE, RELEASES, SUPPORTED
from tunec.targets.sd_scripts.rows import ROWS

_OWN: Final = frozenset(
    {
        *("network_module", "network_dim", "network_alpha", "unet_lr", "max_train_epochs"),
        *("dataset_config", "train_data_dir", "output_name", "save_every_n_epochs", "in_json"),
        *("save_model_as", "save_precision", "cache_latents_to_disk", "optimizer_args"),
        *("max_data_loader_n_workers", "persistent_data_loader_workers", "lr_scheduler_num_cycles"),
        *("caption_extension", "enable_bucket", "min_snr_gamma", "network_args", "xformers"),
    }
)
"""Flags that only musubi-tuner shares, which has another flag for its model."""
_LEAST: Final = 3
_OF_OTHERS: Final = frozenset({"dit", "model_family", "data_backend_config", "job"})
_MODEL: Final = "pretrained_model_name_or_path"


def _is_config(document: Json) -> bool:
    """Whether keys are flags of a training script: some of its own, and none of other programs."""
    keys = frozenset(document) if isinstance(document, Mapping) else frozenset()
    own = len(_OWN & keys)
    return not _OF_OTHERS & keys and own >= (_LEAST if _MODEL in keys else 2 * _LEAST)


def _foreign(found: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """What is trained or repeated besides what slots express."""
    is_cached = found.get("cache_text_encoder_outputs") or found.get("network_train_unet_only")
    if "network_module" in found and not is_cached:
        why = "adapters of text encoders are trained too; the new run trains the denoiser's alone"
        yield "network_module", why
    if "train_data_dir" in found and "dataset_config" not in found:
        why = "folders in it are called `10_name`: their pictures are seen so often"
        yield "train_data_dir", why


_CONFIG, _COMMAND = config_and_command(PACKAGE, RELEASES, ROWS, _is_config, LEAVES, _foreign)
_DATA: Final = data_file(PACKAGE, data.ROWS, data.recognise, DATA_LEAVES)
TARGET: Final = target_of(PACKAGE, SUPPORTED, RELEASES, (_COMMAND, _CONFIG, _DATA))
"""The target for training scripts of kohya-ss/sd-scripts."""
