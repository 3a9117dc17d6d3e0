"""Checks whether the checkpoint that the run saved can be loaded again."""

from pathlib import Path
from typing import Any

import torch

from tunec.compiler.rehearse.live.engine_report import engine_of


def reload(trainer: Any, steps: int) -> dict[str, Any]:
    """Load the last checkpoint as a resumed run does: weights, optimizer and schedule.

    Returns `saved`, the directory's files, and `reloaded`: `yes`, or the exception.
    """
    folder = Path(trainer.args.output_dir, f"checkpoint-{steps}")
    if not folder.is_dir():
        return {"reloaded": "no checkpoint was saved", "saved": []}
    saved = sorted(path.name for path in folder.iterdir())
    before = _sum(trainer)
    try:
        _spoil(trainer)
        _load(trainer, str(folder))
    except Exception as fault:  # noqa: BLE001  whatever is raised is the answer
        return {"reloaded": f"{type(fault).__name__}: {fault}", "saved": saved}
    same = abs(_sum(trainer) - before) <= 1e-3 * max(1.0, abs(before))
    return {
        "reloaded": "yes" if same else "the loaded weights differ from the saved ones",
        "saved": saved,
    }


def _load(trainer: Any, folder: str) -> None:
    """Do what `Trainer._inner_training_loop` does with `resume_from_checkpoint`."""
    if engine_of(trainer) is not None:
        from transformers.integrations.deepspeed import deepspeed_load_checkpoint

        adapted = hasattr(engine_of(trainer).module, "peft_config")
        deepspeed_load_checkpoint(engine_of(trainer), folder, load_module_strict=not adapted)
        return
    trainer._load_from_checkpoint(folder)  # noqa: SLF001
    trainer._load_optimizer_and_scheduler(folder)  # noqa: SLF001


def _trained(trainer: Any) -> list[Any]:
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    return [_here(each) for each in model.parameters() if each.requires_grad]


def _here(parameter: Any) -> Any:
    """The part of a parameter on this rank, which is its shard with ZeRO 3."""
    return getattr(parameter, "ds_tensor", parameter)


def _sum(trainer: Any) -> float:
    return float(sum(each.detach().double().abs().sum() for each in _trained(trainer)))


def _spoil(trainer: Any) -> None:
    """Overwrite the weights, so that only a checkpoint that is really read restores them."""
    with torch.no_grad():
        for each in _trained(trainer):
            each.data.fill_(7.0)
