"""The files of musubi-tuner that are run on a config, and the packages that they need."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from tunec.targets.musubi_tuner.packages import COMMITS, FOLDER, RELEASES
from tunec.targets.scripts.sources import obtain_all
from tunec.targets.scripts.verify import settling

SCRIPT: Final = "tunec.targets.musubi_tuner.consumer.verdicts"
REQUIREMENTS: Final = (
    *("huggingface-hub==0.34.3", "tokenizers==0.21.4", "toml==0.10.2", "transformers==4.54.1"),
    "voluptuous==0.15.2",
)
"""The requirements of pyproject.toml of 0.3.4; parsing arguments needs no torch."""
_FILES: Final = {
    "fpack_train_network.py": "ce3f4b02921cd695cdb0d73190d783cfd6b62ce9",
    "hidream_o1_train.py": "08e8e6f5ad04c002c457c0ac2e2e7a1d77f87a98",
    "hidream_o1_train_network.py": "c80fbb308b02f34745b9a05a31d7b0130dae01df",
    "hv_train_network.py": "15f9e0523fbfa3fb0c4dc238580cdb63df89b1de",
    "ideogram4_train_network.py": "21a326c43c0570b06374552b8f5043efa78b0394",
    "kandinsky5_train_network.py": "ab2d4eec91ed8a95c11e5ebe0a674aa59b11edf7",
    "krea2_train_network.py": "0f8d47c8b5beda0b4e4e2d535f66933f172368de",
    "qwen_image_train.py": "7066dd7dba37d71a73d9b252ba1fff20c1ed6a72",
    "qwen_image_train_network.py": "d47447ea90ed12aa2e79edb4e48c51d281135a73",
    "wan_train_network.py": "e87a17070e9b8dd6ebf43b093db1c4c6d95bc592",
    "zimage_train.py": "f04f47cf520fdb5c954adb46fe2f9c277c22f14f",
    "zimage_train_network.py": "450102cffaa028c7ad35505ae1c5494e03133763",
    "training/parser_common.py": "0d97e5663f1b997a81ca9b765d8aff2c537ee44d",
    "training/trainer_base.py": "fecfacfc740fad9d3b69475f499970cbd4b15fc6",
    "training/accelerator_setup.py": "6df3af20bd0551ace24478a13799d1660b88b0d0",
    "training/sampling_prompts.py": "4458c235825cf2811292f2f4df62ceac4e7b1a14",
    "dataset/config_utils.py": "46dd3f87aace15a551aea6955c187f2222dec1eb",
    "qwen_image/qwen_image_utils.py": "9e39c18be0fa0e82c3248eb3403958a1f7b2f0f8",
    "kandinsky5/configs.py": "d8b15c415d3a28d90e18e24813e3a26174b961e8",
    "ideogram4/sampler_configs.py": "0904f436e79632e6e172b95d630603cd440fa519",
}
"""Files of the newest release, by their git hashes."""


def sources() -> Mapping[str, str]:
    """The local path of each file. Raises EnvironmentUnavailable."""
    commit = COMMITS[RELEASES[-1]]
    found = obtain_all("kohya-ss/musubi-tuner", commit, _FILES, f"{FOLDER}/")
    return {f"musubi_tuner/{path}": place for path, place in found.items()}


question: Final = partial(settling, sources)
