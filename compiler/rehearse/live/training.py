"""The Trainer on the files, for a few steps, watched from inside."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments

from tunec.compiler.rehearse.live.checkpoint import reload
from tunec.compiler.rehearse.live.model import Tokens, build
from tunec.compiler.rehearse.live.reading import (
    Seen,
    engine_of,
    read,
    watch_clipping,
    watch_engine,
    watch_model,
)


def train(question: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Train as training_args.yaml says, and say what ran; `folder` is told of the progress."""
    transformers.logging.set_verbosity_error()
    _tell(folder, "starting the engine")
    (arguments,) = HfArgumentParser([TrainingArguments]).parse_yaml_file("training_args.yaml")
    model = build(question, arguments)
    seen = Seen()
    trainer = _Watched(
        model=model,
        args=arguments,
        train_dataset=Tokens(question["samples"], question["sequence"], question["vocabulary"]),
        callbacks=[_Stop(seen, question["steps"], folder)],
    )
    trainer.seen = seen
    watch_clipping(seen, trainer)
    trainer.train()
    found = read(seen, trainer)
    _tell(folder, "loading the checkpoint")
    found |= reload(trainer, question["steps"])
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return found


def _tell(folder: Path | None, text: str) -> None:
    if folder is not None:
        with Path(folder, "progress.txt").open("a", encoding="utf-8") as out:
            out.write(text + "\n")


class _Watched(Trainer):  # type: ignore[misc]  # transformers is not typed
    """The Trainer, with each micro batch that it takes written down."""

    seen: Seen
    is_watched = False

    def training_step(self, model: Any, inputs: Any, *more: Any, **options: Any) -> Any:
        """One micro batch."""
        if not self.is_watched:
            self.is_watched = True
            watch_model(self.seen, model)
            if (engine := engine_of(self)) is not None:
                watch_engine(self.seen, engine)
        self.seen.micro.append(len(inputs["input_ids"]))
        loss = super().training_step(model, inputs, *more, **options)
        self.seen.losses.append(float(loss))
        return loss


class _Stop(TrainerCallback):  # type: ignore[misc]
    """Reads while it runs; stops after so many steps, with a checkpoint."""

    def __init__(self, seen: Seen, steps: int, folder: Path | None) -> None:
        self.seen, self.steps, self.folder = seen, steps, folder

    def on_step_begin(self, _args: Any, _state: Any, _control: Any, **given: Any) -> None:
        """Before the first micro batch of a step."""
        self.seen.rates.append(float(given["optimizer"].param_groups[0]["lr"]))
        self.seen.begun.append(len(self.seen.micro))

    def on_pre_optimizer_step(self, _args: Any, _state: Any, _control: Any, **given: Any) -> None:
        """Gradients are there; with DeepSpeed the engine has stepped already."""
        self.seen.note_gradients(given["model"])

    def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:
        """After a step."""
        _tell(self.folder, f"step {state.global_step} of {self.steps}")
        control.should_save = state.global_step >= self.steps
        control.should_training_stop = state.global_step >= self.steps
