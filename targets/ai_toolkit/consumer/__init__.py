"""ai-toolkit's config classes and its choice of an optimizer, run on a CPU without torch.

They are taken from pinned files; whatever they import stands for nothing. Verb: `settle`.
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
    """What becomes of a process.

    In: `sources`, files of the tree by their paths there; `process`, the first of the job. Out:
    `values` of each block's class as it is then; `sets`, how many there are; `rate`, which the
    optimizer is given; `refused`.
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
    """The classes of the blocks, as `BaseSDTrainProcess.__init__` makes them, and their check."""
    made = {name: config[kind](**process.get(name, {})) for name, kind in _CLASSES.items()}
    sets = [
        config["DatasetConfig"](**each)
        for each in config["preprocess_dataset_raw_config"](process.get("datasets", []))
    ]
    config["validate_configs"](made["train"], made["model"], made["save"], sets)
    return made, len(sets)


def _rate(optimizer: Module, train: Any) -> float | None:
    """The rate that reaches an optimizer's class."""
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
