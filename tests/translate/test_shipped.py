"""Supervised and preference examples that trainers ship become TRL's files."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.lints.shipped import SHIPMENTS, Shipment, Unreachable, configs, unpacked

from tunec.compiler.lints.environment import environment_of
from tunec.compiler.translate.translate import Translated, translate_files
from tunec.targets.registry import TARGETS

PREFERENCES = ("dpo", "ipo", "orpo", "kto", "simpo")
UNPLANNED = (
    *(
        "expert_parallel_size",
        "fp8",
        "qat",
        "llmcompressor",
        "diffusion",
        "relora",
        "lisa_n_layers",
    ),
    *("use_onebitllms", "use_eaft", "use_eaft_loss", "use_asft_loss", "llama4_linearized_experts"),
    *("use_badam", "use_adam_mini", "use_muon", "use_llama_pro", "mixture_of_depths", "use_kt"),
    *("pipeline_model_parallel_size", "loraplus_lr_ratio", "unfrozen_parameters"),
)
"""Keys of what no spec has: it is trained otherwise, or by another engine than tunec plans for."""
OF_TORCHTUNE = ("quantizer", "teacher_model", "ac_mode")
"""Keys of its recipes that train or recompute otherwise; a tower's layers have names of its own."""
LEAST = {"axolotl": (200, 0.75, 0.9), "llamafactory": (45, 0.4, 0.8)} | {
    "torchtune": (130, 0.8, 0.95)
}
"""How many examples there are at least, the share of them, and of those of a planned kind."""
DIRECT = {
    ("axolotl", "llamafactory"): 115,
    ("axolotl", "ms-swift"): 137,
    ("llamafactory", "axolotl"): 15,
    ("llamafactory", "ms-swift"): 20,
}
"""How many examples of one trainer become another's file at the least."""


def is_supervised(said: Any) -> bool:
    """Whether a file trains on samples or on preferences; rewards and raw text are other tasks."""
    if not isinstance(said, dict):
        return False
    if "checkpointer" in said:
        return "optimizer" in said and isinstance(said.get("model"), dict)
    if said.get("do_train"):
        return said.get("stage") in ("sft", *PREFERENCES)
    rewards = said.get("reward_model") or said.get("process_reward_model")
    is_raw = said.get("pretraining_dataset") and not said.get("datasets")
    is_run = "base_model" in said and not rewards and not is_raw
    return is_run and said.get("rl") in (None, *PREFERENCES)


def is_planned(said: Any) -> bool:
    """Whether a spec can say how a file trains."""
    if "checkpointer" in said:
        is_seeing = "vision" in said["model"]["_component_"]
        return not is_seeing and not any(said.get(key) for key in OF_TORCHTUNE)
    kinds = (said.get("finetuning_type", "full"), said.get("rl") or said.get("stage"))
    is_known = kinds[0] in ("full", "lora") and kinds[1] not in ("kto", "orpo", "simpo")
    return is_known and not any(said.get(key) for key in UNPLANNED)


def translated(path: Path, shipment: Shipment, world: int, to: str = "trl") -> Translated:
    targets = TARGETS.readable()
    around = environment_of(targets, readers=shipment.readers, world=world)
    return translate_files([path], [TARGETS.resolve(to)], targets, around)


def shipment_of(package: str) -> Shipment:
    return next(each for each in SHIPMENTS if each.package == package)


@cache
def outcomes(shipment: Shipment) -> tuple[tuple[Path, Any, bool], ...]:
    """Each supervised example, what it says, and whether it becomes TRL's on two or one devices."""
    try:
        paths = configs(unpacked(shipment), shipment.globs)
    except Unreachable as fault:
        pytest.skip(str(fault))
    read = [(path, yaml.safe_load(path.read_text("utf-8"))) for path in paths if "y" in path.suffix]
    return tuple(
        (path, said, any(translated(path, shipment, world).ok for world in (2, 1)))
        for path, said in read
        if is_supervised(said)
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    "shipment", [each for each in SHIPMENTS if each.package in LEAST], ids=lambda each: each.package
)
def test_most_examples_become_trls(shipment: Shipment) -> None:
    every = outcomes(shipment)
    number, share, planned_share = LEAST[shipment.package]
    assert len(every) >= number
    assert sum(ok for _, _, ok in every) >= share * len(every)
    planned = [(path, ok) for path, said, ok in every if is_planned(said)]
    assert len(planned) >= 0.5 * len(every)
    lost = [str(path) for path, ok in planned if not ok]
    assert len(lost) <= (1 - planned_share) * len(planned), lost


@pytest.mark.nightly
@pytest.mark.parametrize(("one", "other"), DIRECT)
def test_examples_become_another_trainers(one: str, other: str) -> None:
    shipment = shipment_of(one)
    made = [
        path
        for path, _, _ in outcomes(shipment)
        if any(translated(path, shipment, world, other).ok for world in (2, 1))
    ]
    assert len(made) >= DIRECT[one, other]
