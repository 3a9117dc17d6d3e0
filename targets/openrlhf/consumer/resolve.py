"""The settings that OpenRLHF's programs derive from their flags, before they train."""

import importlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import MagicMock, patch

import torch

from tunec.compiler.consumers.devices import declared, pretended
from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.openrlhf.consumer.programs import importable, refusing, run

_TRAINERS: Final = ("sft_trainer.SFTTrainer", "dpo_trainer.DPOTrainer")
_SETS: Final = ("SFTDataset", "RewardDataset")
_NAMED_BY_THE_HOUR: Final = "logger.wandb.run_name"
"""A flag whose default contains the time at which the program starts."""
_ENGINE: Final = "openrlhf.utils.deepspeed.deepspeed"


class _Reached(Exception):
    """Raised when the program has created its trainer and would take its first step."""


class _Model(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """A stand-in for a model: one weight with weight decay, one without."""

    def __init__(self) -> None:
        super().__init__()
        self.proj, self.norm = torch.nn.Linear(1, 1, bias=False), torch.nn.LayerNorm(1, bias=False)
        self.config = SimpleNamespace(to_dict=dict, use_cache=True, pad_token_id=0)
        self.checkpointing: Any = None

    def enable_input_require_grads(self) -> None:
        """Do nothing."""

    def gradient_checkpointing_enable(self, **given: Any) -> None:
        """Store the arguments."""
        self.checkpointing = given


class _Seen:
    """The arguments of the program's calls, in order."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.loaded: list[dict[str, Any]] = []
        self.models: list[_Model] = []
        self.adapter: dict[str, Any] | None = None
        self.engines: list[dict[str, Any]] = []
        self.sets: list[Any] = []
        self.data: list[dict[str, Any]] = []
        self.trainer: dict[str, Any] = {}
        self.strategy: Any = None

    def load(self, name: str, **given: Any) -> _Model:
        """Replaces `from_pretrained`."""
        self.loaded.append({"name": name, **given})
        self.models.append(_Model())
        return self.models[-1]

    def adapt(self, model: _Model, config: Any) -> _Model:
        """Replaces PEFT."""
        self.adapter = config.to_dict()
        return model

    def initialize(self, **given: Any) -> tuple[Any, ...]:
        """Replaces `deepspeed.initialize`."""
        self.engines.append(given)
        return given["model"], MagicMock(), None, MagicMock()

    def blend(self, names: str, *_: Any, **given: Any) -> Any:
        """Replaces the loading of data."""
        split = given.get("dataset_split", "train")
        self.sets.append([[each.strip() for each in names.split(",")], split])
        return MagicMock(__len__=lambda _: self.samples, select=lambda kept: kept)

    def dataset(self, _: Any, __: Any, length: int, ___: Any, **given: Any) -> Any:
        """Replaces a data set's class."""
        self.data.append({"max_length": length, **given})
        return MagicMock(__len__=lambda _: self.samples)

    def train(self, **given: Any) -> None:
        """Replaces a trainer, and stops."""
        self.trainer = given
        raise _Reached


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """The flags as the program uses them.

    In: `program`, its module; `argv`; `samples` of the training data (None: those of one step);
    `world_size`; the declared machine. Out: `version`; `refused` (None, or stage, type and
    message); `said`, its printed warnings; `values` of all flags by their full names; `derived`:
    the settings that it derives from them.
    """
    answer: dict[str, Any] = {
        "version": version("openrlhf"),
        "refused": None,
        "said": "",
        "values": {},
        "derived": {},
    }
    said = io.StringIO()
    with importable(), workplace({}), refusing():
        try:
            _fill(answer, question, said)
        except Refused as refused:
            answer["refused"] = refused.told()
    warned = (line for line in said.getvalue().splitlines() if line.startswith("[Warning]"))
    return {**answer, "said": "\n".join(warned)}


def _fill(answer: dict[str, Any], question: Mapping[str, Any], said: io.StringIO) -> None:
    seen = _Seen(question["samples"] or 0)
    with _surroundings(question), _stand_ins(seen) as instead, redirect_stdout(said):

        def strategy(args: Any) -> Any:
            answer["values"] = plain(dict(_flat(args)))
            if f"--{_NAMED_BY_THE_HOUR}" not in question["argv"]:
                del answer["values"][_NAMED_BY_THE_HOUR]
            seen.samples = seen.samples or args.train.batch_size
            seen.strategy = instead["strategy"](args)
            return seen.strategy

        names = {("openrlhf.utils", "get_strategy"): strategy, **instead["names"]}
        with stage("program"), suppress(_Reached):
            run(question["program"], question["argv"], names)
        with stage("derived"):
            answer["derived"] = plain(dict(_derived(seen)))


def _flat(args: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in vars(args).items():
        if isinstance(value, SimpleNamespace):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


@contextmanager
def _surroundings(question: Mapping[str, Any]) -> Iterator[None]:
    """The declared devices, and the first of `world_size` processes."""
    world = question.get("world_size", 1)
    engine: Any = importlib.import_module(_ENGINE)
    with ExitStack() as stack:
        stack.enter_context(pretended(declared(question)))
        around = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(world)}
        stack.enter_context(patch.dict(os.environ, around))
        stack.enter_context(patch.object(torch.cuda, "set_device", lambda *_: None))
        stack.enter_context(patch.object(engine.deepspeed, "init_distributed", lambda **_: None))
        for name, found in (("get_world_size", world), ("get_rank", 0), ("is_initialized", True)):
            told = MagicMock(return_value=found)
            stack.enter_context(patch.object(torch.distributed, name, told))
        stack.enter_context(patch.object(engine, "init_device_mesh", _mesh))
        sharing = patch.object(engine.DeepspeedStrategy, "setup_ring_attn", lambda *_: None)
        stack.enter_context(sharing)
        yield


def _mesh(_: str, shape: Sequence[int], mesh_dim_names: Sequence[str]) -> Any:
    """A mesh in which each group is represented by its size."""
    groups = dict(zip(mesh_dim_names, shape, strict=True))
    return {
        name: SimpleNamespace(get_group=lambda size=size: size) for name, size in groups.items()
    }


@contextmanager
def _stand_ins(seen: _Seen) -> Iterator[dict[str, Any]]:
    """The functions that load, shard or train, each replaced by one that stores its arguments."""
    actor: Any = importlib.import_module("openrlhf.models.actor")
    engine: Any = importlib.import_module(_ENGINE)
    utils: Any = importlib.import_module("openrlhf.utils")
    with ExitStack() as stack:
        for holder, name, other in (
            (actor.AutoModelForCausalLM, "from_pretrained", seen.load),
            (actor, "get_peft_model", seen.adapt),
            (actor, "HfDeepSpeedConfig", MagicMock()),
            (actor, "set_z3_leaf_modules", MagicMock()),
            (engine.deepspeed, "initialize", seen.initialize),
            (torch.distributed, "get_world_size", _size(torch.distributed.get_world_size())),
        ):
            stack.enter_context(patch.object(holder, name, other))
        names: dict[tuple[str, str], Any] = {
            ("openrlhf.utils", "get_tokenizer"): MagicMock(),
            ("openrlhf.utils.utils", "is_vlm_model"): lambda _: False,
            ("openrlhf.datasets.utils", "blending_datasets"): seen.blend,
            **{("openrlhf.datasets", name): seen.dataset for name in _SETS},
        }
        for each in _TRAINERS:
            module, _, name = each.partition(".")
            names[f"openrlhf.trainer.{module}", name] = seen.train
        yield {"names": names, "strategy": utils.get_strategy}


def _size(world: int) -> Any:
    """The number of all processes, or of a group, which is its own size."""
    return lambda group=None: world if group is None else group


# ── what it handed on ────────────────────────────────────────────────────────────────────────────


def _derived(seen: _Seen) -> Iterator[tuple[str, Any]]:
    first, engine, loader = seen.loaded[0], seen.engines[0], seen.trainer["train_dataloader"]
    bits = first["quantization_config"]
    yield (
        "model",
        {
            "name": first["name"],
            "attention": first["attn_implementation"],
            "dtype": str(first["torch_dtype"]).removeprefix("torch."),
            "quantization": None if bits is None else bits.to_dict(),
        },
    )
    yield "adapter", None if seen.adapter is None else plain(seen.adapter)
    yield "checkpointing", seen.models[0].checkpointing
    yield "deepspeed", engine["config"]
    yield (
        "decays",
        [group["weight_decay"] for group in engine["model_parameters"]]
        if (not isinstance(engine["model_parameters"][0], torch.Tensor))
        else None,
    )
    yield "accumulation", seen.strategy.accumulated_gradient
    yield "sets", seen.sets
    yield "data", [{key: plain(value) for key, value in each.items()} for each in seen.data]
    yield (
        "loader",
        {
            "batch": loader.batch_size,
            "workers": loader.num_workers,
            "pinned": loader.pin_memory,
        },
    )
    yield "epochs", seen.trainer["max_epochs"]
    yield from _rate(engine["lr_scheduler"])
    yield (
        "references",
        [
            {"name": given["name"], "config": made["config"]}
            for given, made in zip(seen.loaded[1:], seen.engines[1:], strict=True)
        ],
    )
    yield "beta", seen.trainer.get("beta")


def _rate(factory: Any) -> Iterator[tuple[str, Any]]:
    """The steps of the schedule and of its warmup, and the factor after the last step."""
    total = factory.keywords["num_training_steps"]
    yield "steps", total
    made = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    factor = factory(made).lr_lambdas[0]
    highest = (step for step in range(total + 1) if factor(step) == 1.0)
    yield (
        "schedule",
        {
            "kind": str(factory.args[0]),
            "warmup": next(highest, None),
            "last": factor(total),
        },
    )
