"""How musubi-tuner processes flags and files before it loads a model: resolved, or refused.

Runs inside an environment with `toml`, `voluptuous` and transformers, which need no torch here. The
`main` of a script is run, taken from pinned files; their other imports are replaced by stubs, and
each data set has no samples. For a script that trains adapters, the steps of `NetworkTrainer.train`
that check arguments are run. Verb: `settle`.
"""

import contextlib
import io
import logging
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers.trainer_utils import SchedulerType

from tunec.targets.scripts.functions import Module, Nothing, Tree, tree_of

_ABSENT = ("bitsandbytes", "wandb")
_SHARED = "musubi_tuner.training.trainer_base"
_BACKENDS = ("NO", "EAGER", "INDUCTOR")


_WAN = {
    task: SimpleNamespace(boundary=boundary, is_fun_control="FC" in task, v2_2="A14B" in task)
    for task, boundary in (
        ("t2v-14B", None),
        ("t2v-1.3B", None),
        ("i2v-14B", None),
        ("t2v-A14B", 0.875),
    )
}
"""The settings in wan/configs of some tasks."""


class _Settled(Exception):
    """Raised when the arguments are final, just before the model is loaded."""


def settle(question: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a command with its files, after all checks.

    In: `sources`, local files by their paths in the tree; `program`; `argv`; `config` and `data`,
    the texts of the two files, or None. Out: `values`, the final arguments; `refused`.
    """
    absent: Any = Nothing()
    setattr(Nothing, "__iter__", None)  # noqa: B010  it has no items, and not endless ones
    sys.modules.update(dict.fromkeys(_ABSENT, absent))
    logging.disable(logging.CRITICAL)
    tree = tree_of(
        {path: Path(file).read_text("utf-8") for path, file in question["sources"].items()}
    )
    told = io.StringIO()
    found: dict[str, Any] = {}
    with contextlib.redirect_stderr(told), tempfile.TemporaryDirectory() as folder:
        try:
            _run(tree, question, Path(folder), found)
        except _Settled:
            pass
        except SystemExit:
            return {"values": {}, "refused": told.getvalue().strip().splitlines()[-1]}
        except Exception as fault:  # noqa: BLE001  whatever it is, it ends the program
            return {"values": {}, "refused": f"{type(fault).__name__}: {fault}"}
    return {"values": {key: _plain(each) for key, each in found.items()}, "refused": None}


def _run(tree: Tree, question: Mapping[str, Any], folder: Path, found: dict[str, Any]) -> None:
    program = _module(tree, f"musubi_tuner.{question['program']}")
    argv = list(question["argv"])
    for name, flag in (("config", "--config_file"), ("data", "--dataset_config")):
        if question[name] is not None:
            (folder / f"{name}.toml").write_text(question[name], "utf-8")
            argv += [flag, str(folder / f"{name}.toml")]
    _stand_in(tree, program, found)
    sys.argv = [f"{question['program']}.py", *argv]
    program["main"]()


def _module(tree: Tree, name: str) -> Module:
    found = tree.module(name)
    if found is None:
        raise LookupError(f"{name} is not among the sources")
    return found


def _stand_in(tree: Tree, program: Module, found: dict[str, Any]) -> None:
    """Install stand-ins for the launcher's choices, for data sets, and for training itself."""
    for name in ("musubi_tuner.training.parser_common", "musubi_tuner.hv_train"):
        module = tree.module(name)
        if module is not None:
            module["DynamoBackend"] = [SimpleNamespace(value=word) for word in _BACKENDS]
    data = _module(tree, "musubi_tuner.dataset.config_utils")
    data |= dict.fromkeys(("ImageDataset", "VideoDataset"), _Set)
    base = _module(tree, _SHARED)
    program["WAN_CONFIGS"] = _WAN
    setup = _module(tree, "musubi_tuner.training.accelerator_setup")
    setup["torch"] = _OneDevice()

    def train(self: Any, args: Namespace) -> None:
        _steps(base, data, self, args)
        found.update(vars(args))
        raise _Settled

    base["NetworkTrainer"].train = train
    for module in (base, program):
        module["SchedulerType"] = SchedulerType


class _OneDevice(Nothing):
    """A stand-in for torch with one device."""

    cuda = SimpleNamespace(device_count=lambda: 1)


class _Set:
    """A data set with what the checks read: the folder of its cache."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)
        folders = (given.get(f"{kind}_directory") for kind in ("image", "video"))
        self.cache_directory = given["cache_directory"] or next(filter(None, folders), None)

    def set_seed(self, *_: Any) -> None:
        """Do nothing."""

    def prepare_for_training(self, **_: Any) -> None:
        """Do nothing."""


def _steps(base: Module, data: Module, trainer: Any, args: Namespace) -> None:
    """The steps of `NetworkTrainer.train` that check arguments, in its order."""
    trainer._validate_args_and_init(args)  # noqa: SLF001  as `train` does
    user = data["load_user_config"](args.dataset_config)
    blueprint = data["BlueprintGenerator"](data["ConfigSanitizer"]()).generate(user, args)
    data["generate_dataset_group_by_blueprint"](blueprint.dataset_group, training=True)
    base["prepare_accelerator"](args)
    if args.sample_prompts:
        trainer.process_sample_prompts(args, Nothing(), args.sample_prompts)
    trainer.load_transformer = Nothing()
    trainer._load_dit_and_swap(args, Nothing(), None)  # noqa: SLF001  as `train` does
    base["transformers"] = SimpleNamespace(
        optimization=SimpleNamespace(Adafactor=_Adafactor, AdafactorSchedule=Nothing())
    )
    base["torch"] = SimpleNamespace(optim=SimpleNamespace(AdamW=_Optimizer))
    *_, optimizer, _, _ = trainer.get_optimizer(args, [])
    trainer.get_lr_scheduler(args, optimizer, 1)


class _Optimizer:
    """An optimizer without parameters."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept the arguments of the real class."""


class _Adafactor(_Optimizer):
    """The class by which a schedule of Adafactor recognises its optimizer."""


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return value if is_plain else str(value)


VERBS = {"settle": settle}
