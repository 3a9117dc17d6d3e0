"""The files of sd-scripts that are run on a config, and the packages that they need."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from tunec.targets.scripts.sources import obtain_all
from tunec.targets.scripts.verify import settling
from tunec.targets.sd_scripts.packages import COMMITS, RELEASES

SCRIPT: Final = "tunec.targets.sd_scripts.consumer.verdicts"
REQUIREMENTS: Final = (
    *("huggingface-hub==0.34.3", "tokenizers==0.21.4", "toml==0.10.2", "transformers==4.54.1"),
    "voluptuous==0.15.2",
)
"""The pins of requirements.txt of 0.10.1; parsing arguments needs no torch."""
_FILES: Final = {
    "train_network.py": "2f8797d25a38b09623ffd62505fdb0e803b9aa69",
    "sdxl_train_network.py": "5c5bcd63a371fa8bec758ab7360112549b0de6c4",
    "flux_train_network.py": "cfc617088d65505a01fdf3620aa81573ce3808ab",
    "library/train_util.py": "d8577b9d7ff0787cf98225d8c6690aac098afd7f",
    "library/config_util.py": "53727f2522fe0c86a76eda1d962069ed9eaef9c1",
    "library/utils.py": "296fc4151abd74bb4d786f0a630d0a1be6e636ea",
    "library/deepspeed_utils.py": "4daeb254985a3a279bc6d0ba53f2df37892fe971",
    "library/custom_train_functions.py": "ad3e69ffba0c482812681c485d999d9923e00045",
    "library/sdxl_train_util.py": "e559e7185448568d92874499fe3369d33facd6ab",
    "library/flux_train_utils.py": "c96e4bb6d3af3e2eeb524ec9c89bbc6bcdc5493c",
    "library/sai_model_spec.py": "0ac9b3be93f718f561cbfa12c5c2c26b1059e446",
    "library/strategy_base.py": "6e6487eaef2cf6f167b4f23ef2e9c02331243ac1",
}
"""Files of the newest release, by their git hashes."""


def sources() -> Mapping[str, str]:
    """The local path of each file. Raises EnvironmentUnavailable."""
    return obtain_all("kohya-ss/sd-scripts", COMMITS[RELEASES[-1]], _FILES)


question: Final = partial(settling, sources)
