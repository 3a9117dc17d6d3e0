"""What a config class takes for keys that a config leaves out, by `model_type` or class name.

Read from transformers 5.23.0, `models/<family>/configuration_<family>.py` (class attributes), and
diffusers 0.42.1 (arguments of `__init__`), for the keys that the derivations read; the test
`tests/analyses/architecture/test_defaults.py` compares the table with those classes. Families of
`trust_remote_code` name their own source.
"""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.analyses.architecture.defaults.decoders import DECODERS
from tunec.compiler.analyses.architecture.defaults.diffusion import DIFFUSION
from tunec.compiler.analyses.architecture.defaults.encoders import ENCODERS
from tunec.compiler.analyses.architecture.defaults.experts import EXPERTS
from tunec.compiler.analyses.architecture.defaults.vision import VISION

DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    **DECODERS,
    **EXPERTS,
    **ENCODERS,
    **VISION,
    **DIFFUSION,
}
