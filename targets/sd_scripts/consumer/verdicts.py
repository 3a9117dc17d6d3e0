"""How sd-scripts processes flags and files before it loads a model: resolved, or refused.

Runs inside an environment with `toml`, `voluptuous` and transformers, which need no torch here. Its
own functions are run, taken from pinned files: the parser, `read_config_from_file`, the checks of
arguments, the check of the data config, and the choice of optimizer and schedule. Their other
imports are replaced by stubs. Verb: `settle`.
"""

import contextlib
import io
import math
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from transformers.trainer_utils import SchedulerType

from tunec.targets.scripts.functions import Module, Nothing, Tree, tree_of

_ABSENT = (
    *("bitsandbytes", "lion_pytorch", "prodigyopt", "dadaptation", "dadaptation.experimental"),
    *("schedulefree", "wandb"),
)


def settle(question: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a command with its files, after all checks.

    In: `sources`, local files by their paths in the tree; `program`; `argv`; `config` and `data`,
    the texts of the two files, or None. Out: `values`, the final arguments; `refused`.
    """
    absent: Any = Nothing()
    sys.modules.update(dict.fromkeys(_ABSENT, absent))
    tree = tree_of(
        {path: Path(file).read_text("utf-8") for path, file in question["sources"].items()}
    )
    told = io.StringIO()
    with contextlib.redirect_stderr(told), tempfile.TemporaryDirectory() as folder:
        try:
            args = _settled(tree, question, Path(folder))
        except SystemExit:
            return {"values": {}, "refused": told.getvalue().strip().splitlines()[-1]}
        except Exception as fault:  # noqa: BLE001  whatever it is, it ends the program
            return {"values": {}, "refused": f"{type(fault).__name__}: {fault}"}
    return {"values": {key: _plain(each) for key, each in vars(args).items()}, "refused": None}


def _settled(tree: Tree, question: Mapping[str, Any], folder: Path) -> Namespace:
    util, program = _module(tree, "library.train_util"), _module(tree, question["program"])
    parser, argv = program["setup_parser"](), list(question["argv"])
    if question["config"] is not None:
        (folder / "config.toml").write_text(question["config"], "utf-8")
        argv += ["--config_file", str(folder / "config.toml")]
    sys.argv = [f"{question['program']}.py", *argv]
    args: Namespace = util["read_config_from_file"](parser.parse_args(), parser)
    util["verify_training_args"](args)
    util["prepare_dataset_args"](args, True)
    group = _data(tree, question["data"], args, folder)
    _verified(program, args, group)
    _optimized(util, args)
    return args


def _module(tree: Tree, name: str) -> Module:
    found = tree.module(name)
    if found is None:
        raise LookupError(f"{name} is not among the sources")
    return found


# ── data ─────────────────────────────────────────────────────────────────────────────────────────


class _Group:
    """A data set group with the methods that the checks call, without images."""

    def __init__(self, util: Module, subsets: list[Any], step: int | None) -> None:
        self.subsets, self.bucket_reso_steps = subsets, step
        base = util["BaseDataset"]
        self.is_latent_cacheable: Callable[[], bool] = base.is_latent_cacheable.__get__(self)
        cacheable = base.is_text_encoder_output_cacheable
        self.is_text_encoder_output_cacheable: Callable[[], bool] = cacheable.__get__(self)
        self.verify_bucket_reso_steps: Callable[[int], None] = (
            base.verify_bucket_reso_steps.__get__(self)
        )


def _data(tree: Tree, text: str | None, args: Namespace, folder: Path) -> _Group:
    """The data config, or the one folder that flags name, checked and merged with the flags."""
    config, util = _module(tree, "library.config_util"), _module(tree, "library.train_util")
    user: Any = {"datasets": [{"subsets": [{"image_dir": "img"}]}]}
    if text is not None:
        (folder / "data.toml").write_text(text, "utf-8")
        user = config["load_user_config"](str(folder / "data.toml"))
    sanitizer = config["ConfigSanitizer"](True, True, args.masked_loss, True)
    blueprint = config["BlueprintGenerator"](sanitizer).generate(user, args)
    subsets, step = [], None
    for each in blueprint.dataset_group.datasets:
        subsets += [one.params for one in each.subsets]
        if each.params.enable_bucket:
            step = each.params.bucket_reso_steps
            adjust = util["BaseDataset"].adjust_min_max_bucket_reso_by_steps
            bounds = (each.params.min_bucket_reso, each.params.max_bucket_reso, step)
            adjust(None, each.params.resolution, *bounds)
    return _Group(util, subsets, step)


# ── what scripts ask themselves ──────────────────────────────────────────────────────────────────


def _verified(program: Module, args: Namespace, group: _Group) -> None:
    """The assertions of a script that trains adapters, in the order of `NetworkTrainer.train`."""
    if args.cache_latents:
        assert group.is_latent_cacheable(), "latents are cached"  # noqa: S101  as the scripts do
    for name in ("FluxNetworkTrainer", "SdxlNetworkTrainer"):
        trainer = program.get_or_none(name)
        if trainer is not None:
            object.__new__(trainer).assert_extra_args(args, group, None)


def _optimized(util: Module, args: Namespace) -> None:
    """Run the choice of optimizer and schedule, with the real arguments and no parameters."""
    util["SchedulerType"] = SchedulerType
    optimization = SimpleNamespace(Adafactor=_Adafactor, AdafactorSchedule=Nothing())
    util["transformers"] = SimpleNamespace(optimization=optimization)
    *_, optimizer = util["get_optimizer"](args, [{"lr": args.learning_rate}])
    args.max_train_steps = math.ceil(args.max_train_steps or 0)
    util["get_scheduler_fix"](args, optimizer, 1)


class _Adafactor(Nothing):
    """The class by which a schedule of Adafactor recognises its optimizer."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept the arguments of the real class."""


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    is_plain = value is None or isinstance(value, bool | int | float | str)
    return value if is_plain else str(value)


VERBS = {"settle": settle}
