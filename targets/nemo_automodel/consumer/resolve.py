"""The settings that NeMo AutoModel's classes read from a file, before a model is loaded."""

import dataclasses
import importlib
import inspect
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

import torch

from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace

_FILE: Final = "nemo_automodel.yaml"
_MANY: Final = 1000
"""The steps of an epoch whose length is unknown."""


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """The file as the recipe uses it.

    In: `yaml`; `samples` of the training data (None: unknown, and many); `world_size`. Out:
    `version`; `refused` (None, or stage, type and message); `values` of all sections, with the
    fields of its classes; `derived`: the objects that its classes build.
    """
    answer: dict[str, Any] = {
        "version": version("nemo-automodel"),
        "refused": None,
        "values": {},
        "derived": {},
    }
    with workplace({_FILE: question["yaml"]}):
        try:
            _fill(answer, question)
        except Refused as refused:
            answer["refused"] = refused.told()
    return answer


def _part(name: str) -> Any:
    return importlib.import_module(f"nemo_automodel.{name}")


def _fill(answer: dict[str, Any], question: Mapping[str, Any]) -> None:
    """Fill the answer as far as the classes accept the file, then raise their error."""
    with stage("load"):
        raw = _part("components.config.loader").load_yaml_config(_FILE)
        config = _part("recipes._typed_config").RecipeConfig(raw)
    answer["values"] = plain(raw.to_yaml_dict(use_orig_values=True))
    with stage("sections"):
        spread = dict(_part("recipes._dist_utils").parse_distributed_section(_spread(config)))
        made = {
            "step_scheduler": config.step_scheduler,
            "lr_scheduler": config.lr_scheduler,
            "checkpoint": config.checkpoint,
            "peft": config.peft.instantiate() if config.get("peft") else None,
        }
    for name, each in made.items():
        if answer["values"].get(name):
            answer["values"][name] |= plain(dataclasses.asdict(each))
    with stage("build"):
        answer["derived"] = dict(_derived(config, spread, question))


def _spread(config: Any) -> dict[str, Any]:
    found: dict[str, Any] = config.distributed.to_dict()
    return found


# ── what its classes build ───────────────────────────────────────────────────────────────────────


def _derived(
    config: Any, spread: Mapping[str, Any], question: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    yield "model", _loaded(config)
    yield "data", _data(config)
    yield "seed", config.get("seed", 42)  # recipes/llm/train_ft.py `setup`: StatefulRNG
    yield "loss", type(config.loss_fn.build()).__name__
    yield "distributed", _sharded(spread)
    yield "quantization", _bits(config)
    yield "adapted", _adapted(config)
    model = torch.nn.Linear(1, 1)
    optimizers = config.optimizer.build(model, is_peft=True)
    defaults = optimizers[0].defaults
    yield "optimizer", {"class": type(optimizers[0]).__name__, **plain(defaults)}
    steps = _steps(config, question)
    yield (
        "steps",
        {
            "accumulation": steps.grad_acc_steps,
            "most": steps.max_steps,
            "epochs": steps.num_epochs,
            "saves": steps.ckpt_every_steps,
        },
    )
    yield "rate", None if config.lr_scheduler is None else _rate(config, optimizers, steps)


def _loaded(config: Any) -> dict[str, Any]:
    """The arguments of `from_pretrained`, bound to its signature."""
    told = config.model.to_dict()
    load = told.pop("_target_")
    bound = inspect.signature(load).bind(**told).arguments
    dtype = _part("shared.utils").dtype_from_str(told.get("torch_dtype", "bfloat16"))
    return {"class": load.__qualname__, "names": sorted(bound), "dtype": plain(dtype)}


def _data(config: Any) -> list[dict[str, Any]]:
    """The data sets: from 0.6 on by their config classes, before by their calls."""
    if hasattr(type(config), "validation_dataloaders"):
        every = [config.dataloader, *config.validation_dataloaders.values()]
        return [
            {"kind": type(each.dataset_config).__name__, "batch": each.batch_size, **_plain(each)}
            for each in every
        ]
    nodes = [config.get(name) for name in ("dataset", "validation_dataset")]
    return [_called(each.to_dict(), config) for each in nodes if each is not None]


def _plain(loader: Any) -> dict[str, Any]:
    found = plain(dataclasses.asdict(loader.dataset_config))
    return {
        key: found[key] for key in ("path_or_dataset_id", "seq_length", "split") if key in found
    }


def _called(told: dict[str, Any], config: Any) -> dict[str, Any]:
    make = told.pop("_target_")
    inspect.signature(make).bind(**{"tokenizer": None, **told})
    kept = {key: told.get(key) for key in ("path_or_dataset_id", "seq_length", "split")}
    batch = config.get("step_scheduler.local_batch_size", 1)
    return {"kind": f"{make.__name__}Config", "batch": batch, **plain(kept)}


def _sharded(spread: Mapping[str, Any]) -> dict[str, Any]:
    strategy = spread["strategy_config"]
    policy = getattr(strategy, "mp_policy", None)
    return {
        "class": type(strategy).__name__,
        "compute": None if policy is None else plain(policy.param_dtype),
        "sums": None if policy is None else plain(policy.reduce_dtype),
        "keeps": getattr(strategy, "reshard_after_forward", None) is False,
        "copies": spread["dp_replicate_size"],
        "tensor": spread["tp_size"],
        "sequence": spread["cp_size"],
        "recomputes": bool(spread["activation_checkpointing"]),
    }


def _adapted(config: Any) -> list[str] | None:
    """The layers of a block, and the head, that its own matcher finds for the listed names."""
    if not config.get("peft"):
        return None
    peft, linear = config.peft.instantiate(), torch.nn.Linear(1, 1)
    matcher = _part("components._peft.module_matcher").ModuleMatcher(peft.target_modules)
    names = [each.rpartition("*.")[2] for each in matcher.target_modules]
    paths = {name: name if name == "lm_head" else f"model.layers.0.block.{name}" for name in names}
    return [name for name, path in paths.items() if matcher.match(linear, path)]


def _bits(config: Any) -> Any:
    said = config.get("quantization", None)
    if said is None:
        return None
    return plain(_part("components.quantization.qlora").create_bnb_config(said).to_dict())


def _steps(config: Any, question: Mapping[str, Any]) -> Any:
    micro, world = config.get("step_scheduler.local_batch_size", 1), question["world_size"]
    samples = question["samples"] or _MANY * config.step_scheduler.global_batch_size
    rows = torch.utils.data.TensorDataset(torch.arange(samples))
    loaders = _loaders(config, rows, world, micro)
    return config.step_scheduler.build(loaders["dataloader"], world, micro)


def _loaders(config: Any, rows: Any, world: int, micro: int) -> dict[str, Any]:
    """The first rank's loaders: from 0.6 on the package's own, before those that the file names."""
    if hasattr(type(config), "validation_dataloaders"):
        make = _part("components.datasets.loader").ParallelAwareDataloader
        return {"dataloader": make(rows, dp_rank=0, dp_world_size=world, batch_size=micro)}
    held_out = ("validation_dataloader",) if config.get("validation_dataset") else ()
    return {
        name: _named_loader(config.get(name).to_dict(), rows, world, micro)
        for name in ("dataloader", *held_out)
    }


def _named_loader(told: dict[str, Any], rows: Any, world: int, micro: int) -> Any:
    """As 0.5.0 recipes/llm/train_ft.py `build_dataloader` calls the class."""
    make, kind = told.pop("_target_"), _torchdata().StatefulDistributedSampler
    told.pop("shuffle", None)
    sampler = kind(rows, num_replicas=world, rank=0, drop_last=True)
    return make(dataset=rows, sampler=sampler, batch_size=micro, **told)


def _torchdata() -> Any:
    return importlib.import_module("torchdata.stateful_dataloader.sampler")


def _rate(config: Any, optimizers: Any, steps: Any) -> dict[str, Any]:
    """The first step with the highest learning rate, and the rate after the last step."""
    (made,) = config.lr_scheduler.build(optimizers, steps)
    group = optimizers[0].param_groups[0]
    total, highest, most = made.lr_decay_steps, None, made.max_lr
    for step in range(total + 1):
        if highest is None and group["lr"] == most:
            highest = step
        last = group["lr"]
        made.step(1)
    return {"warmup": highest, "first": plain(made.init_lr), "last": last, "total": total}
