"""Defaults of config classes for keys that a config omits, by `model_type` or class name.

Read from transformers 5.23.0, `models/<family>/configuration_<family>.py` (class attributes), and
diffusers 0.42.1 (arguments of `__init__`), for the keys that the derivations read; the test
`tests/analyses/architecture/test_defaults.py` compares the table with those classes.

Of OpenGVLab/InternVL (2410d1dbf208), `internvl_chat/internvl/model`, are internlm2
(internlm2/configuration_internlm2.py), intern_vit_6b and internvl_chat (internvl_chat/
configuration_intern_vit.py, configuration_internvl_chat.py). The image processors are transformers'
`models/<family>/image_processing_<family>.py` (class attributes).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = json.loads(
    Path(__file__).with_name("defaults.json").read_text("utf-8")
)
