"""verl's programs up to their classes: the whole is checked, and each section is instantiated."""

import importlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.verl.consumer.programs import importable
from tunec.targets.verl.consumer.resolve import FOLDER, MODEL, composed, unloaded, whole
from tunec.targets.verl.consumer.rewards import composed as composed_for_rewards
from tunec.targets.verl.consumer.rewards import taking_any_rank, validated

_NAME = "verl"


def check(question: Mapping[str, Any]) -> dict[str, Any]:
    """In: `yaml`, composed over verl's own file; `program`, `ppo` or `sft`. Out: `refused`."""
    files = {
        f"{FOLDER}/{_NAME}.yaml": question["yaml"],
        f"{MODEL}/config.json": json.dumps(whole({"model_type": "qwen2"})),
    }
    with importable(), workplace(files):
        try:
            _checked(question["program"])
        except Refused as refused:
            return {"refused": refused.told()}
    return {"refused": None}


def _checked(name: str) -> None:
    is_ppo = name == "ppo"
    program: Any = importlib.import_module(
        f"verl.trainer.{'main_ppo' if is_ppo else 'sft_trainer'}"
    )
    with taking_any_rank():
        with stage("compose"), unloaded():
            compose = composed_for_rewards if is_ppo else composed
            config = compose(program, _NAME)
        with stage("validation"), unloaded():
            if is_ppo:
                dict(validated(config))
            utils: Any = importlib.import_module("verl.utils.config")
            for section in _sections(config):
                utils.omega_conf_to_dataclass(section)
            if config.get("optim") is not None or is_ppo:
                _made(config.optim if not is_ppo else config.actor_rollout_ref.actor.optim)


def _made(section: Any) -> None:
    """Instantiate a section; if it is an optimizer of torch, also with one parameter."""
    utils: Any = importlib.import_module("verl.utils.config")
    optimizers: Any = importlib.import_module("verl.workers.config.optimizer")
    torch: Any = importlib.import_module("torch")
    config = utils.omega_conf_to_dataclass(section)
    if hasattr(config, "optimizer_impl"):
        optimizers.build_optimizer([torch.nn.Parameter(torch.zeros(1))], config)


def _sections(config: Any) -> Iterator[Any]:
    """Sections with a class, nested ones included, which a trainer instantiates."""
    omegaconf: Any = importlib.import_module("omegaconf")
    for key in config:
        held = config._get_node(key)  # noqa: SLF001
        if isinstance(held, omegaconf.DictConfig) and _is_used(key, held):
            if "_target_" in held:
                yield held
            else:
                yield from _sections(held)


_BY_WORKERS: Final = ("ref", "reward", "profiler", "global_profiler", "skip")
"""Sections that workers read, or that do not concern training."""


def _is_used(key: str, held: Any) -> bool:
    return key not in _BY_WORKERS and (key != "critic" or held.get("enable") is True)
