"""GRPO by TRL's own trainer: the loss, answers, log-probabilities, and the handover of weights.

The methods of `GRPOTrainer` and `VLLMGeneration` run on objects that hold only the attributes that
they read (trl 1.16 `trainer/grpo_trainer.py`, `generation/vllm_generation.py`).
"""

import gc
import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import torch

from tunec.compiler.analyses.memory.workload import Preference
from tunec.compiler.tracing.live.generation import read_and_write
from tunec.compiler.tracing.live.quantized_merge import repacking
from tunec.compiler.tracing.live.storages import Storages
from tunec.compiler.tracing.recording import GENERATION, HANDING, READING, SCORING
from tunec.compiler.tracing.subject import Subject, Untraceable

_TRAINER: Final = "trl.trainer.grpo_trainer"
_ENGINE: Final = "trl.generation.vllm_generation"


class Trained(NamedTuple):
    """The trained model, as its engine leaves it."""

    model: Any
    """The model without the engine's wrapper, with PEFT's own wrapper."""
    wrapped: Any
    reference: Any
    """The second model, if there is one."""
    casts: AbstractContextManager[Any]


def loss_over_answers(subject: Subject, model: Any, batch: dict[str, Any]) -> Callable[[], Any]:
    """The loss as GRPOTrainer computes it over one micro batch of answers."""
    asked = _asked(subject)
    trainer = _trainer(subject, model)
    ids, kept = batch["input_ids"], asked.scored
    mask = torch.ones_like(ids)
    rows = torch.zeros(ids.shape[0], device="meta")
    inputs = {
        "prompt_ids": ids[:, :-kept],
        "prompt_mask": mask[:, :-kept],
        "completion_ids": ids[:, -kept:],
        "completion_mask": mask[:, -kept:],
        "advantages": rows,
        "num_items_in_batch": torch.zeros((), device="meta"),
    }
    known = torch.zeros(ids.shape[0], kept, device="meta")
    if asked.engine:
        inputs |= {"old_per_token_logps": known, "importance_sampling_ratio": known}
    if trainer.beta:
        inputs["ref_per_token_logps"] = known

    def loss() -> Any:
        with _unread():
            return trainer._compute_loss(model, inputs)  # noqa: SLF001  what `compute_loss` calls

    return loss


def go_on(subject: Subject, storages: Storages, trained: Trained) -> None:
    """Record the phases before GRPO's next step, if the subject has them."""
    asked = subject.workload.preference
    if asked is None or not asked.scored:
        return
    gc.collect()
    if asked.engine:
        _hand_over(subject, storages, trained)
    else:
        _generate(subject, storages, trained)
    _score(subject, storages, trained, asked)
    storages.recording.begin("")


def _generate(subject: Subject, storages: Storages, trained: Trained) -> None:
    written, fsdp = subject.workload.generation, subject.layout.fsdp
    if written is None:
        return
    if subject.is_adapted and fsdp.version == 2:
        raise Untraceable(
            "FSDP 2 gathers its root unit when PEFT's model is called, which `generate` passes by: "
            "such a run fails"
        )
    utils = importlib.import_module("trl.models.utils")
    accelerator = _accelerator(subject, trained.wrapped)
    rows = written.sequences * _share(subject)
    with (
        utils.unwrap_model_for_generation(trained.wrapped, accelerator) as model,
        torch.no_grad(),
        _backend(accelerator).summon_full_params(trained.wrapped, recurse=False),
    ):
        read_and_write(
            subject, storages, model, written, (rows, (READING, GENERATION)), trained.casts
        )


def _score(subject: Subject, storages: Storages, trained: Trained, asked: Preference) -> None:
    """Log-probabilities of the answers, by the model that generated them and by the reference."""
    compares = asked.reference in ("resident", "base")
    if not asked.engine and not compares:
        return
    utils = importlib.import_module("trl.models.utils")
    trainer = _trainer(subject, trained.model)
    micro = subject.layout.batch.micro
    ids = torch.zeros(_share(subject), _tokens(subject), dtype=torch.long, device="meta")
    given = (ids, torch.ones_like(ids), asked.scored)
    find = trainer._get_per_token_logps_and_entropies  # noqa: SLF001
    storages.recording.begin(SCORING)
    with (
        torch.no_grad(),
        utils.disable_gradient_checkpointing(trained.model, {"use_reentrant": False}),
        trained.casts,
    ):
        found = [find(trained.model, *given, batch_size=micro)[0]] if asked.engine else []
        if asked.reference == "resident":
            found.append(find(trained.reference, *given, batch_size=micro)[0])
        elif compares:
            with importlib.import_module(_TRAINER).use_adapter(trained.model, adapter_name=None):
                found.append(find(trained.model, *given, batch_size=micro)[0])
    del found


def _hand_over(subject: Subject, storages: Storages, trained: Trained) -> None:
    """Run `sync_weights`, which gathers parameters and merges adapters into them."""
    module = importlib.import_module(_ENGINE)
    accelerator = _accelerator(subject, trained.wrapped)
    engine = object.__new__(module.VLLMGeneration)
    engine.model, engine.accelerator = trained.model, accelerator
    engine._dist = _backend(accelerator)
    storages.recording.begin(HANDING)
    torch.empty((), device="meta")  # a walk over what is whole makes nothing
    with repacking(subject):
        for _ in engine._iter_named_params():
            pass
    storages.recording.begin("")


def _trainer(subject: Subject, model: Any) -> Any:
    """A GRPOTrainer that was never initialised, with the attributes that its loss reads."""
    module = importlib.import_module(_TRAINER)
    asked, batch = _asked(subject), subject.layout.batch
    trainer = object.__new__(module.GRPOTrainer)
    trainer.__dict__ |= {
        "model": model,
        "accelerator": _accelerator(subject, model),
        "args": SimpleNamespace(
            delta=None,
            use_bias_correction_kl=False,
            steps_per_generation=batch.accumulation,
            report_to=[],
        ),
        "beta": 0.04 if asked.reference in ("resident", "base") else 0.0,
        "loss_type": "dapo",
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "importance_sampling_level": "token",
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "use_vllm": asked.engine,
        "vllm_importance_sampling_correction": asked.engine,
        "aux_loss_enabled": False,
        "_entropy_bonus_enabled": False,
        "current_gradient_accumulation_steps": batch.accumulation,
        "_metrics": {name: _Unkept() for name in ("train", "eval")},
    }
    return trainer


class _Unkept(dict[str, Any]):
    """Metrics that are not read."""

    def __missing__(self, _: str) -> list[Any]:
        return []


def _accelerator(subject: Subject, model: Any) -> Any:
    """The attributes that TRL reads of an Accelerator; the Trainer casts around all functions."""
    layout = subject.layout
    zero = SimpleNamespace(zero_stage=layout.zero.stage)
    fsdp = SimpleNamespace(fsdp_version=layout.fsdp.version)
    engine = layout.parallel.engine
    return SimpleNamespace(
        num_processes=layout.parallel.world,
        is_main_process=False,
        autocast=nullcontext,
        gather=lambda value: value,
        reduce=lambda value, **_: value,
        unwrap_model=lambda wrapped: getattr(wrapped, "module", wrapped),
        device=torch.device("meta"),
        model=model,
        state=SimpleNamespace(
            deepspeed_plugin=zero if engine == "deepspeed" else None,
            fsdp_plugin=fsdp if engine == "fsdp" else None,
        ),
    )


def _backend(accelerator: Any) -> Any:
    return importlib.import_module("trl.distributed").DistributedBackend(accelerator)


def _unread() -> AbstractContextManager[Any]:
    """Skip the values that TRL picks for its log, which meta tensors do not hold."""
    module, stack = importlib.import_module(_TRAINER), ExitStack()
    for name in ("nanmin", "nanmax"):
        stack.enter_context(patch.object(module, name, lambda found: found.sum()))
    return stack


def _asked(subject: Subject) -> Preference:
    asked = subject.workload.preference
    if asked is None:
        raise Untraceable("no answers are compared")
    return asked


def _share(subject: Subject) -> int:
    return subject.layout.batch.micro * subject.layout.batch.accumulation


def _tokens(subject: Subject) -> int:
    data = subject.workload.data
    return data.sequence + data.image_tokens
