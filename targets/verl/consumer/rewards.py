"""The settings that verl's `main_ppo` reads from its file, before Ray starts a worker."""

import importlib
import io
import json
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.verl.consumer.programs import importable
from tunec.targets.verl.consumer.resolve import (
    FOLDER,
    MODEL,
    adapter,
    micro_batches,
    optimizer,
    sharding,
    unloaded,
    whole,
)

_PLAIN: Final = ("data", "trainer")
"""The sections without a class."""
_CLASSES: Final = ("actor_rollout_ref.rollout", "algorithm")
"""Sections that are instantiated besides the actor's, which comes with its engine."""
_RANKS: Final = "verl.workers.rollout.vllm_rollout"
"""The module that reads vLLM's list of adapter ranks; vLLM is not installed here."""


def resolve_rewarded(question: Mapping[str, Any]) -> dict[str, Any]:
    """The file as the program uses it.

    In: `yaml`, and the `name` under which Hydra finds it; `config`, the model's config.json;
    `samples` of the training data (None: unknown); `world_size`, the devices. Out: `version`;
    `refused` (None, or stage, type and message); `values` of all sections; `unread`, keys of
    sections without a class that verl's own file lacks; `derived`, the results of verl's functions:
    whether there is a critic and a reference, the steps, the micro batches, the optimizer, its
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
    with importable(), workplace(files), redirect_stdout(io.StringIO()):
        try:
            _fill(answer, question)
        except Refused as refused:
            answer["refused"] = refused.told()
    return answer


def _fill(answer: dict[str, Any], question: Mapping[str, Any]) -> None:
    """Fill the answer as far as the program runs, then raise the error that stopped it."""
    program: Any = importlib.import_module("verl.trainer.main_ppo")
    omegaconf: Any = importlib.import_module("omegaconf").OmegaConf
    with taking_any_rank(), unloaded():
        with stage("compose"):
            config = composed(program, question["name"])
        answer["values"] = plain(omegaconf.to_container(config, resolve=True))
        own = _own()
        answer["unread"] = [
            f"{name}.{key}" for name in _PLAIN for key in config[name] if key not in own[name]
        ]
        with stage("validation"):
            answer["derived"] = dict(validated(config))
    with stage("training"):
        answer["derived"] |= dict(_derived(config, question))


def composed(program: Any, name: str) -> Any:
    """The config that the program's entry passes on to Ray."""
    found: list[Any] = []
    words = [program.__file__, "--config-dir", FOLDER, "--config-name", name]

    def run(config: Any, *_: Any, **__: Any) -> None:
        found.append(config)

    with patch.object(program, "run_ppo", run), patch.object(sys, "argv", words):
        program.main()
    return found[0]


def _own() -> Any:
    """The config of verl's own file."""
    hydra: Any = importlib.import_module("hydra")
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        return hydra.compose("ppo_trainer")


def taking_any_rank() -> Any:
    """Replace vLLM's list of adapter ranks, so that every rank is accepted."""
    package, module = types.ModuleType(_RANKS), types.ModuleType(f"{_RANKS}.utils")
    module.__dict__["get_vllm_max_lora_rank"] = int
    return patch.dict(sys.modules, {_RANKS: package, f"{_RANKS}.utils": module})


def validated(config: Any) -> Iterator[tuple[str, Any]]:
    """Run the program's own checks, instantiate its sections, and report critic and reference."""
    utils: Any = importlib.import_module("verl.trainer.ppo.utils")
    checks: Any = importlib.import_module("verl.utils.config")
    reference, critic = utils.need_reference_policy(config), utils.need_critic(config)
    checks.validate_config(config=config, use_reference_policy=reference, use_critic=critic)
    omegaconf: Any = importlib.import_module("omegaconf").OmegaConf
    for name in _CLASSES:
        checks.omega_conf_to_dataclass(omegaconf.select(config, name))
    yield "critic", bool(critic)
    yield "reference", bool(reference)


# ── what its functions make of the values ────────────────────────────────────────────────────────


def _derived(config: Any, question: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    loader = _dealing(config, question["samples"])
    if question["samples"] is not None or config.trainer.total_training_steps is not None:
        yield "steps", loader.total_training_steps
    checks: Any = importlib.import_module("verl.utils.config")
    with unloaded():
        model = checks.omega_conf_to_dataclass(config.actor_rollout_ref.model)
    actor = checks.omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    answers = actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
    said = {
        "use_dynamic_bsz": actor.use_dynamic_bsz,
        "micro_batch_size_per_gpu": actor.ppo_micro_batch_size_per_gpu,
        "max_token_len_per_gpu": actor.ppo_max_token_len_per_gpu,
    }
    share = answers // question["world_size"]
    yield "micro_batches", None if actor.use_dynamic_bsz else micro_batches(said, share)
    trainer = SimpleNamespace(
        optimizer_config=actor.optim, engine_config=actor.engine, model_config=model
    )
    yield from optimizer(trainer)
    yield from sharding(actor.engine, question["world_size"])
    yield "strategy", actor.engine.strategy
    yield "adapter", adapter(trainer)
    if importlib.import_module("verl.trainer.ppo.utils").need_critic(config):
        yield "critic", dict(_critic(config, question["world_size"]))


def _critic(config: Any, world: int) -> Iterator[tuple[str, Any]]:
    """The second model: its optimizer, its sharding, and what bounds its batches."""
    checks: Any = importlib.import_module("verl.utils.config")
    with unloaded():
        critic = checks.omega_conf_to_dataclass(config.critic)
    held = SimpleNamespace(optimizer_config=critic.optim)
    yield from optimizer(held)
    yield from sharding(critic.engine, world)
    yield "adapters", critic.model.lora_rank
    yield "epochs", critic.ppo_epochs
    yield "answers", critic.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
    yield "tokens", [critic.ppo_max_token_len_per_gpu, critic.ppo_infer_max_token_len_per_gpu]


def _dealing(config: Any, samples: int | None) -> Any:
    """The trainer with loaders of `samples` prompts, which set the optimizer's steps."""
    prompts = range(samples or config.data.train_batch_size)
    if tuple(map(int, version("verl").split(".")[:2])) < (0, 9):
        module: Any = importlib.import_module("verl.trainer.ppo.ray_trainer")
        made = object.__new__(module.RayPPOTrainer)
        made.config = config
        made._create_dataloader(prompts, prompts, None, _in_order(prompts))
        return made
    module = importlib.import_module("verl.trainer.ppo.v1.trainer_base")
    made = SimpleNamespace(
        config=config, tokenizer=None, processor=None, trainer_mode=config.trainer.v1.trainer_mode
    )
    made.parameter_sync_step = 1
    with (
        patch.object(module, "create_rl_dataset", lambda *_, **__: prompts),
        patch.object(module, "create_rl_sampler", lambda *_: _in_order(prompts)),
    ):
        module.PPOTrainer._init_dataloader(made)  # noqa: SLF001
    return made


def _in_order(prompts: range) -> Any:
    sampler: Any = importlib.import_module("torch.utils.data").SequentialSampler
    return sampler(prompts)
