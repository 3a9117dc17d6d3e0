"""What a trainer said and left behind: its own log, its state, its checkpoints."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from safetensors import safe_open
from tests.road.bundle_run import Journey

_COUNTS: Final = {
    "samples": "Num examples",
    "micro": "Instantaneous batch size per device",
    "global_batch": "Total train batch size (w. parallel, distributed & accumulation)",
    "accumulation": "Gradient Accumulation steps",
    "steps": "Total optimization steps",
    "trainable": "Number of trainable parameters",
}
"""transformers 5.23.0 trainer.py `Trainer._inner_training_loop`: what it logs at the start."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the Trainer ran with."""

    samples: int
    micro: int
    global_batch: int
    accumulation: int
    steps: int
    trainable: int
    rates: tuple[float, ...]
    """Learning rate of each step."""
    evaluated: tuple[int, ...]
    """Steps after which there was an evaluation."""
    checkpoints: tuple[int, ...]
    """Steps whose checkpoints are there in the end."""
    loaded: tuple[Path, ...]
    """Files of weights that were loaded."""
    adapted: frozenset[str]
    """Modules with an adapter, by their paths in the base model."""
    beside: frozenset[str]
    """Modules that were saved in full beside the adapters."""

    @property
    def world(self) -> int:
        """Processes that shared a step."""
        return self.global_batch // (self.micro * self.accumulation)


def seen(journey: Journey) -> Seen:
    """Read the log and the output folder of a run that transformers' Trainer made."""
    return Seen(
        **{name: _count(title, journey.log) for name, title in _COUNTS.items()},
        rates=tuple(each for _, each in _logged("learning_rate", journey.output)),
        evaluated=tuple(step for step, _ in _logged("eval_loss", journey.output)),
        checkpoints=checkpoints_in(journey.output),
        loaded=loaded(journey),
        adapted=adapted(journey.output),
        beside=_beside(journey.output),
    )


def _count(title: str, log: str) -> int:
    found = re.search(rf"^.*{re.escape(title)} = ([\d,]+)", log, re.MULTILINE)
    assert found, f"the trainer's log does not say {title!r}:\n{log[-4000:]}"
    return int(found[1].replace(",", ""))


def checkpoints_in(output: Path) -> tuple[int, ...]:
    """Steps whose checkpoints are in a folder."""
    return tuple(sorted(int(each.name.split("-")[1]) for each in output.glob("checkpoint-*")))


def _logged(name: str, output: Path) -> Iterator[tuple[int, float]]:
    """The steps at which the Trainer logged a value, with the value."""
    last = output / f"checkpoint-{checkpoints_in(output)[-1]}" / "trainer_state.json"
    history = json.loads(last.read_text("utf-8"))["log_history"]
    return ((each["step"], each[name]) for each in history if name in each)


def settings_of_deepspeed(journey: Journey) -> Mapping[str, str]:
    """What DeepSpeed's engine made of its file: runtime/config.py `DeepSpeedConfig.print`."""
    return dict(re.findall(r"config\.py:\d+:print\]   (\w+) \.* ?(.*)$", journey.log, re.MULTILINE))


def arguments_of(journey: Journey) -> Any:
    """The TrainingArguments that the Trainer ran with, as it saved them."""
    import torch

    return torch.load(journey.output / "training_args.bin", weights_only=False)


def loaded(journey: Journey) -> tuple[Path, ...]:
    """Files of weights that were loaded."""
    names = re.findall(r"loading weights file (\S+)", journey.log)
    places = ((journey.project / "out" / name).resolve() for name in names)
    return tuple(dict.fromkeys(places))


def adapted(output: Path) -> frozenset[str]:
    """Modules whose adapters were saved, by their paths in the base model."""
    return frozenset(each.partition(".lora_")[0] for each in _saved(output) if ".lora_" in each)


def _beside(output: Path) -> frozenset[str]:
    return frozenset(
        each.removesuffix(".weight") for each in _saved(output) if ".lora_" not in each
    )


def _saved(output: Path) -> frozenset[str]:
    """The tensors that an adapter's file holds, by their paths in the base model."""
    file = output / "adapter_model.safetensors"
    if not file.exists():
        return frozenset()
    with safe_open(file, "np") as tensors:
        names = tensors.keys()
    return frozenset(name.removeprefix("base_model.model.") for name in names)


def packed(log: str) -> Mapping[str, tuple[str, ...]]:
    """The quantised modules of the base model: format, whether doubly, compute dtype and storage.

    Of 8 bits the dtype alone.
    """
    found = re.findall(r"^packed: (\S+) (\S+) (\S+) (\S+) (\S+)$", log, re.MULTILINE)
    names = ((name.removeprefix("base_model.model."), kept) for name, *kept in found)
    return {
        name.removesuffix(".base_layer"): tuple(each.removeprefix("torch.") for each in kept)
        for name, kept in names
    }


def trained_in(log: str) -> str:
    """The dtype of what is trained beside a quantised base, as the Trainer begins."""
    (found,) = set(re.findall(r"^trained beside them in: torch\.(\w+)$", log, re.MULTILINE))
    return found


def linear_modules(folder: Path) -> tuple[str, ...]:
    """Paths of the linear modules of the model in a folder, its head left out."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    config = AutoConfig.from_pretrained(folder)
    kind = AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(config)
    return tuple(
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and name != "lm_head"
    )
