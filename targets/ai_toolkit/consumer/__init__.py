"""ai-toolkit's config classes and its choice of an optimizer, run on a CPU without torch.

They come from pinned files, whose imports are replaced by empty objects. Verb: `settle`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tunec.targets.scripts.functions import Module, Nothing, tree_of

_CLASSES = {
    "network": "NetworkConfig",
    "train": "TrainConfig",
    "model": "ModelConfig",
    "save": "SaveConfig",
}


def settle(question: Mapping[str, Any]) -> dict[str, Any]:
    """The values with which a process runs.

    In: `sources`, files of the repository by their paths there; `process`, the first process of the
    job. Out: `values` of the object of each block; `sets`, the number of data sets; `rate`, which
    the optimizer gets; `refused`.
    """
    files = question["sources"].items()
    tree = tree_of({path: Path(file).read_text("utf-8") for path, file in files})
    config, optimizer = tree.module("toolkit.config_modules"), tree.module("toolkit.optimizer")
    if config is None or optimizer is None:
        raise LookupError("the files are not among the sources")
    no_mps = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False))
    config["torch"] = SimpleNamespace(backends=no_mps)
    try:
        made, sets = _made(config, question["process"])
        rate = _rate(optimizer, made["train"])
    except ValueError as fault:
        return {"values": {}, "rate": None, "refused": f"ValueError: {fault}"}
    values = {name: {k: _plain(v) for k, v in vars(each).items()} for name, each in made.items()}
    return {"values": values, "sets": sets, "rate": rate, "refused": None}


def _made(config: Module, process: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The blocks' objects, as `BaseSDTrainProcess.__init__` creates and checks them."""
    made = {name: config[kind](**process.get(name, {})) for name, kind in _CLASSES.items()}
    sets = [
        config["DatasetConfig"](**each)
        for each in config["preprocess_dataset_raw_config"](process.get("datasets", []))
    ]
    config["validate_configs"](made["train"], made["model"], made["save"], sets)
    return made, len(sets)


def _rate(optimizer: Module, train: Any) -> float | None:
    """The learning rate that an optimizer's class gets."""
    told: dict[str, Any] = {}

    def taken(*_: Any, **arguments: Any) -> Nothing:
        told.update(arguments)
        return Nothing()

    absent: Any = SimpleNamespace(Prodigy=taken, DAdaptAdam=taken, optim=Nothing())
    sys.modules.update(dict.fromkeys(("prodigyopt", "dadaptation", "bitsandbytes"), absent))
    optimizer["torch"] = Nothing()
    optimizer["get_optimizer"]([], train.optimizer, train.lr, dict(train.optimizer_params))
    return told.get("lr")


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


VERBS = {"settle": settle}
