"""torchtune: `tune run RECIPE --config FILE`, a recipe's YAML, which is only read.

Its values are components: `_component_` names a class or a function, and the keys beside it are its
arguments. Only the command names the recipe and the number of devices.
"""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.target import Cannot, File, Json, Target, in_no_plan
from tunec.targets.read_only import schema_of
from tunec.targets.scripts.file import own_script
from tunec.targets.torchtune.data import CARRIES, DATA, forms
from tunec.targets.torchtune.migration import LEAVES
from tunec.targets.torchtune.model import ADAPTER, MODEL
from tunec.targets.torchtune.packages import PACKAGE, RELEASES, SUPPORTED
from tunec.targets.torchtune.training import ENGINE, LOSS, OPTIMIZER, RUNTIME, SCHEDULE
from tunec.targets.trainers import adding_no_noise, averaging_tokens, evaluating_by_loss

_COMPONENTS: Final = ("model", "optimizer", "checkpointer")


def _is_config(document: Json) -> bool:
    """Whether a document configures training: evaluation and generation have no optimizer."""
    if not isinstance(document, Mapping):
        return False
    parts = (document.get(name) for name in _COMPONENTS)
    return all(isinstance(part, Mapping) and "_component_" in part for part in parts)


CONFIG: Final = File(
    f"{PACKAGE}.yaml",
    "yaml",
    (*MODEL, *ADAPTER, *DATA, *LOSS, *OPTIMIZER, *SCHEDULE, *ENGINE, *RUNTIME),
    _is_config,
    schema_of(PACKAGE, RELEASES, PACKAGE),
    when=in_no_plan,
    leaves=LEAVES,
    defaults=averaging_tokens(across=True),  # recipes/full_finetune_distributed.py: all_reduce
    foreign=forms,
    carries=CARRIES,
)
TARGET: Final = Target(
    name=PACKAGE,
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(CONFIG,),
    cannot={
        **adding_no_noise(PACKAGE),
        **evaluating_by_loss(PACKAGE),
        "launch.script": own_script(PACKAGE),
        "launch.launcher": Cannot("`tune run` starts recipes", True, ("torchrun",)),
    },
    run_by="trl",
)
"""The target for `tune run` of torchtune."""
