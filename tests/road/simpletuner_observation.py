"""What SimpleTuner said and left behind: it counts by itself, and has a bar for its steps."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import safe_open
from tests.road.bundle_run import Journey
from tests.road.seen import checkpoints_in

_BAR: Final = r"Steps: [^\r\n]*?(\d+)/(\d+) \[[^\r\n]*?, lr=([-+.e\d]+), step_loss="
"""Step, steps of the run, and the rate of the step that comes next."""
_LOADED: Final = r"Loading diffusion model from (\S+)$"
_PART: Final = "transformer."
_WEIGHTS: Final = "transformer/diffusion_pytorch_model.safetensors"


@dataclass(frozen=True, slots=True)
class PaintingSeen:
    """What `simpletuner train` ran with."""

    world: int
    """Ranks, by the data that each of them drew from."""
    micro: int
    accumulation: int
    global_batch: int
    batches: int
    """Micro batches of an epoch, on the first rank."""
    updates: int
    """Optimizer steps of an epoch."""
    epochs: int
    limit: int
    """Optimizer steps of the run as it counted them: each epoch's tail as a step."""
    steps: int
    """Optimizer steps that it took."""
    rates: tuple[float, ...]
    """The rate of each step but the first, to three digits."""
    drawn: tuple[int, ...]
    """Pictures that each rank draws from."""
    checkpoints: tuple[int, ...]
    loaded: tuple[Path, ...]
    """Folders of the weights that were loaded."""
    adapted: frozenset[str]
    """Modules with an adapter, by their paths in the denoiser."""
    kept: tuple[int, ...]
    """Parameters of the denoiser as it was, and as it was saved in full; empty with adapters."""


def seen_of_painting(journey: Journey) -> PaintingSeen:
    """Read the log and the output folder of a run.

    simpletuner 4.10.1 helpers/training/trainer.py `_recalculate_training_steps`, `train`;
    helpers/training/save_hooks.py; helpers/publishing/metadata.py `save_training_config`.
    """
    is_full = (journey.output / "pipeline").is_dir()
    saved = journey.output / "pipeline" if is_full else journey.output
    counted = json.loads((saved / "simpletuner_config.json").read_text("utf-8"))
    bars = {int(step): float(rate) for step, _, rate in re.findall(_BAR, journey.log)}
    checkpoints = checkpoints_in(journey.output)
    drawn = _drawn(journey.output / f"checkpoint-{checkpoints[-1]}")
    return PaintingSeen(
        world=len(drawn),
        micro=counted["train_batch_size"],
        accumulation=counted["gradient_accumulation_steps"],
        global_batch=counted["total_batch_size"],
        batches=counted["total_num_batches"],
        updates=counted["num_update_steps_per_epoch"],
        epochs=counted["num_train_epochs"],
        limit=counted["max_train_steps"],
        steps=max(bars),
        rates=tuple(bars[step] for step in range(1, max(bars))),
        drawn=drawn,
        checkpoints=checkpoints,
        loaded=_loaded(journey),
        adapted=frozenset() if is_full else _adapted(journey.output),
        kept=tuple(map(_parameters, (journey.project / "painting", saved))) if is_full else (),
    )


def weights_of(pipeline: Path) -> dict[str, Any]:
    """The tensors of the denoiser in a folder of diffusers, by their names."""
    with safe_open(pipeline / _WEIGHTS, "pt") as tensors:
        return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118


def _parameters(pipeline: Path) -> int:
    return sum(each.numel() for each in weights_of(pipeline).values())


def _drawn(checkpoint: Path) -> tuple[int, ...]:
    """How many pictures each rank has, by the state of its samplers."""
    ranks: dict[int, int] = {}
    for file in checkpoint.glob("training_state*-train-*.json"):
        state = json.loads(file.read_text("utf-8"))
        buckets = state["aspect_ratio_bucket_indices"].values()
        rank = state["dp_rank"]
        ranks[rank] = ranks.get(rank, 0) + sum(len(each) for each in buckets)
    return tuple(count for _, count in sorted(ranks.items()))


def _loaded(journey: Journey) -> tuple[Path, ...]:
    """The trainer starts in the folder of its target."""
    home = journey.project / "out" / "simpletuner"
    found = re.findall(_LOADED, (home / "debug.log").read_text("utf-8"), re.MULTILINE)
    return tuple(dict.fromkeys((home / name).resolve() for name in found))


def _adapted(output: Path) -> frozenset[str]:
    with safe_open(output / "pytorch_lora_weights.safetensors", "np") as tensors:
        names = [name.removeprefix(_PART) for name in tensors.keys()]  # noqa: SIM118
    return frozenset(name.partition(".lora_")[0] for name in names)


def linear_modules_of_denoiser(folder: Path) -> tuple[str, ...]:
    """Paths of the linear modules of the denoiser in a folder."""
    import diffusers
    import torch

    kind = getattr(
        diffusers, json.loads((folder / "config.json").read_text("utf-8"))["_class_name"]
    )
    with torch.device("meta"):
        model = kind.from_config(kind.load_config(folder))
    kinds = (name for name, each in model.named_modules() if isinstance(each, torch.nn.Linear))
    return tuple(kinds)
