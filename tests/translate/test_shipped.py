"""Supervised and preference examples that trainers ship become TRL's files."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.lints.shipped import SHIPMENTS, Shipment, Unreachable, configs, unpacked
from tests.tables import loaded

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
REFUSED = loaded(Path(__file__).with_name("refused.yaml").read_text("utf-8"))
"""Why examples of a trainer are refused, and how many by each target."""


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


@cache
def refusals(shipment: Shipment, other: str) -> Mapping[Path, tuple[str, ...]]:
    """The errors of each example that does not become `other`'s."""
    every = {path: errors(path, shipment, other) for path, _, _ in outcomes(shipment)}
    return {path: found for path, found in every.items() if found}


def errors(path: Path, shipment: Shipment, other: str) -> tuple[str, ...]:
    """What is in the way of a translation on two devices, or on one if that is less."""
    found = (translated(path, shipment, world, other).diagnostics for world in (2, 1))
    told = ([f"{e.id} {e.message}" for e in each if e.severity == "error"] for each in found)
    return tuple(min(told, key=len))


PAIRS = [
    (one, other)
    for one, groups in REFUSED.items()
    for other in sorted({name for group in groups for name in group["examples"]})
]


@pytest.mark.nightly
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_examples_are_refused_for_reasons_that_hold(one: str, other: str) -> None:
    """Each error has a reason, and each reason as many examples as are known: neither a new error
    nor one that spreads goes unseen."""
    every = refusals(shipment_of(one), other)
    groups = [each for each in REFUSED[one] if other in each["examples"]]
    told = {error for found in every.values() for error in found}
    assert not {each for each in told if not any(explains(group, each) for group in groups)}
    counted = {
        group["why"]: sum(any(explains(group, each) for each in found) for found in every.values())
        for group in groups
    }
    assert counted == {group["why"]: group["examples"][other] for group in groups}


def explains(group: Mapping[str, Any], error: str) -> bool:
    """Whether a group is about an error."""
    return any(fnmatchcase(error, pattern) for pattern in group["told"])
