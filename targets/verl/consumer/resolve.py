"""The settings that verl's SFT trainer reads from its file, before a model is loaded."""

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import MagicMock, patch

import torch

from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.verl.consumer.programs import importable

MODEL: Final = "model-of-the-plan"
FOLDER: Final = "verl"
_SECTIONS: Final = ("model", "engine", "optim", "checkpoint")
"""The sections that the trainer instantiates: `_build_config`."""
_PLAIN: Final = ("data", "trainer")
"""The sections without a class, whose keys the trainer reads by name."""
_LOADED: Final = ("hf_config", "generation_config", "tokenizer", "processor")


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """The file as the trainer uses it.

    In: `yaml`, and the `name` under which Hydra finds it; `config`, the model's config.json;
    `samples` of the training data (None: unknown); `world_size`, the processes. Out: `version`;
    `refused` (None, or stage, type and message); `values` of all sections, from the trainer's own
    classes if they have one; `unread`, keys of sections without a class that verl's own file lacks;
    `derived`, the results of verl's functions: the steps, the micro batches, the optimizer, its
    rate, the sharding, the adapter.
    """
    answer: dict[str, Any] = {
        "version": version("verl"),
        "refused": None,
        "values": {},
        "unread": [],
        "derived": {},
    }
    files = {
        f"{FOLDER}/{question['name']}.yaml": question["yaml"],
        f"{MODEL}/config.json": json.dumps(whole(question["config"])),
    }
    with importable(), workplace(files):
        try:
            _fill(answer, question)
        except Refused as refused:
            answer["refused"] = refused.told()
    return answer


def whole(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """A model config with an architecture, which verl requires."""
    return {"architectures": ["LlamaForCausalLM"], **config}


def _fill(answer: dict[str, Any], question: Mapping[str, Any]) -> None:
    """Fill the answer as far as the program runs, then raise the error that stopped it."""
    program: Any = importlib.import_module("verl.trainer.sft_trainer")
    with stage("compose"):
        config = composed(program, question["name"])
    omegaconf: Any = importlib.import_module("omegaconf").OmegaConf
    answer["values"] = plain(omegaconf.to_container(config, resolve=True))
    own = composed(program)
    answer["unread"] = [
        f"{name}.{key}" for name in _PLAIN for key in config[name] if key not in own[name]
    ]
    trainer = object.__new__(program.SFTTrainer)
    trainer.config = config
    with stage("classes"), unloaded():
        trainer._build_config()
    made = (
        *(trainer.model_config, trainer.engine_config),
        *(trainer.optimizer_config, trainer.checkpoint_config),
    )
    for name, each in zip(_SECTIONS, made, strict=True):
        answer["values"][name] = {key: plain(each[key]) for key in each if key not in _LOADED}
    with stage("training"):
        answer["derived"] = dict(_derived(trainer, question))


def composed(program: Any, name: str = "") -> Any:
    """The config that the program's entry passes to its trainer; by default that of verl's file."""
    found: list[Any] = []
    named = ["--config-dir", FOLDER, "--config-name", name] if name else []
    words = [program.__file__, *named]
    with patch.object(program, "run_sft", found.append), patch.object(sys, "argv", words):
        program.main()
    return found[0]


@contextmanager
def unloaded() -> Iterator[None]:
    """Replace the download of the model and its tokenizer."""
    module: Any = importlib.import_module("verl.workers.config.model")
    there = str(Path(MODEL).absolute())
    with ExitStack() as stack:
        for name, stood_in in (
            ("copy_to_local", lambda *_, **__: there),
            ("hf_tokenizer", lambda *_, **__: None),
            ("hf_processor", lambda *_, **__: None),
            ("get_generation_config", lambda *_, **__: None),
        ):
            stack.enter_context(patch.object(module, name, stood_in))
        yield


# ── what its functions make of the values ────────────────────────────────────────────────────────


def _derived(trainer: Any, question: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    shared = trainer.engine_config.ulysses_sequence_parallel_size
    width = question["world_size"] // shared
    yield from _steps(trainer, question["samples"], width)
    yield "micro_batches", _micro_batches(trainer, width)
    yield from optimizer(trainer)
    yield from sharding(trainer.engine_config, question["world_size"])
    yield "adapter", adapter(trainer)


def _steps(trainer: Any, samples: int | None, width: int) -> Iterator[tuple[str, Any]]:
    """The steps of the run and of an epoch, as the trainer computes them from its loader."""
    trainer.engine = SimpleNamespace(
        get_data_parallel_rank=lambda: 0, get_data_parallel_size=lambda: width
    )
    trainer.training_client = MagicMock()
    trainer.train_dataset = range(samples or trainer.config.data.train_batch_size)
    trainer.val_dataset = None
    trainer._build_dataloader()  # noqa: SLF001
    trainer._init_engine()  # noqa: SLF001
    if samples is not None or trainer.config.trainer.total_training_steps is not None:
        yield "steps", trainer.total_training_steps
    if samples is not None:
        yield "steps_an_epoch", trainer.steps_per_epoch


def _micro_batches(trainer: Any, width: int) -> int | None:
    """The micro batches of a process's share of a batch; None: tokens decide it."""
    data = trainer.config.data
    return None if data.use_dynamic_bsz else micro_batches(data, data.train_batch_size // width)


def micro_batches(said: Any, share: int) -> int:
    """The micro batches that the engine makes of `share` samples, by a section's numbers."""
    tensors: Any = importlib.import_module("verl.utils.tensordict_utils")
    engines: Any = importlib.import_module("verl.workers.engine.utils")
    names = ("use_dynamic_bsz", "micro_batch_size_per_gpu", "max_token_len_per_gpu")
    held = tensors.get_tensordict(
        tensor_dict={"input_ids": torch.zeros(share, 1)},
        non_tensor_dict={name: said[name] for name in names},
    )
    return len(engines.prepare_micro_batches(held)[0])


def optimizer(trainer: Any) -> Iterator[tuple[str, Any]]:
    """The optimizer of one parameter, and the factors of its learning rate."""
    optimizers: Any = importlib.import_module("verl.workers.config.optimizer")
    engine: Any = importlib.import_module("verl.workers.engine.fsdp.transformer_impl").FSDPEngine
    config = trainer.optimizer_config
    made = optimizers.build_optimizer([torch.nn.Parameter(torch.zeros(1))], config)
    yield "optimizer", {"class": type(made).__name__, **plain(made.defaults)}
    held = SimpleNamespace(rank=1, optimizer_config=config)
    factor = engine._build_lr_scheduler(held, made).lr_lambdas[0]  # noqa: SLF001
    total = config.total_training_steps
    highest = (step for step in range(total + 1) if factor(step) == 1.0)
    yield "rate", {"warmup": next(highest, None), "last": factor(total)}


def sharding(config: Any, world: int) -> Iterator[tuple[str, Any]]:
    """The mesh of all processes, torch's name of the sharding over it, and the dtypes."""
    module: Any = importlib.import_module("verl.workers.engine.fsdp.utils")
    dtypes: Any = importlib.import_module("verl.utils.torch_dtypes").PrecisionType

    def mesh(_: str, mesh_shape: tuple[int, ...], **__: Any) -> SimpleNamespace:
        return SimpleNamespace(ndim=len(mesh_shape), shape=mesh_shape)

    with patch.object(module, "init_device_mesh", mesh):
        made = module.create_device_mesh(world, config.fsdp_size)
    yield "mesh", list(made.shape)
    yield "sharding", module.get_sharding_strategy(made, config.reshard_after_forward).name
    yield "weights", plain(dtypes.to_dtype(config.model_dtype))
    mixed = config.mixed_precision or {}
    yield "compute", plain(dtypes.to_dtype(mixed.get("param_dtype", "bf16")))


def adapter(trainer: Any) -> dict[str, Any] | None:
    """The arguments of peft's LoraConfig, as the engine creates it."""
    if trainer.model_config.lora_rank <= 0:
        return None
    module: Any = importlib.import_module("verl.workers.engine.fsdp.transformer_impl")
    held = SimpleNamespace(model_config=trainer.model_config)
    with patch.object(module, "get_peft_model") as made:
        made.return_value.parameters.return_value = ()
        module.FSDPEngine._build_lora_module(held, MagicMock())  # noqa: SLF001
    config = made.call_args.args[1]
    names = ("r", "lora_alpha", "lora_dropout", "target_modules", "bias", "use_rslora", "use_dora")
    return {name: plain(getattr(config, name)) for name in names}
