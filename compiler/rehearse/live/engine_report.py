"""The state of a running engine: counted while it ran, and read from its own objects."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch

_STILL_ZERO: Final = (
    *("overlap_comm", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size"),
    *("allgather_bucket_size", "prefetch_bucket_size", "param_persistence_threshold"),
    *("max_live_parameters", "max_reuse_distance", "sub_group_size"),
    *("gather_16bit_weights_on_model_save", "zero_hpz_partition_size"),
)
"""Fields of deepspeed 0.19.8 runtime/zero/config.py `DeepSpeedZeroConfig` that slots set."""


@dataclass(slots=True)
class EngineObservations:
    """Observations made while the engine ran."""

    micro: list[int] = field(default_factory=list)
    """Samples of each micro batch."""
    begun: list[int] = field(default_factory=list)
    """The number of micro batches taken before each optimizer step began."""
    rates: list[float] = field(default_factory=list)
    """The learning rate of each optimizer step."""
    losses: list[float] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)
    """The norms to which gradients were clipped, outside of DeepSpeed."""
    gradients: set[str] = field(default_factory=set)
    """The dtypes of the gradients when the optimizer stepped."""
    products: set[str] = field(default_factory=set)
    """The dtypes that linear layers returned."""
    autocast: set[bool] = field(default_factory=set)
    recomputed: int = 0
    """The number of layers run under activation checkpointing."""
    reentrant: set[bool] = field(default_factory=set)

    def note_gradients(self, model: torch.nn.Module) -> None:
        """Record the dtypes of the parameters' gradients."""
        for each in model.parameters():
            if each.grad is not None:
                self.gradients.add(_name(each.grad.dtype))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ── watching ─────────────────────────────────────────────────────────────────────────────────────


def watch_clipping(seen: EngineObservations, trainer: Any) -> None:
    """Record each norm that the Trainer clips to; DeepSpeed clips by its own configuration."""
    clip = trainer.accelerator.clip_grad_norm_

    def noting(parameters: Any, max_norm: float, *more: Any, **options: Any) -> Any:
        seen.clipped.append(float(max_norm))
        return clip(parameters, max_norm, *more, **options)

    trainer.accelerator.clip_grad_norm_ = noting


def watch_model(seen: EngineObservations, model: torch.nn.Module) -> None:
    """Record what the layers do: recomputation, and the dtype of products under autocast."""
    for module in model.modules():
        if hasattr(module, "_gradient_checkpointing_func"):
            _watch_recomputation(seen, module)
    first = next(each for each in model.modules() if isinstance(each, torch.nn.Linear))

    def note(_module: Any, _inputs: Any, output: torch.Tensor) -> None:
        seen.products.add(_name(output.dtype))
        seen.autocast.add(torch.is_autocast_enabled(output.device.type))

    first.register_forward_hook(note)


def _watch_recomputation(seen: EngineObservations, module: Any) -> None:
    plain: Callable[..., Any] = module._gradient_checkpointing_func  # noqa: SLF001

    def noting(*arguments: Any, **options: Any) -> Any:
        seen.recomputed += 1
        seen.reentrant.add(bool(getattr(plain, "keywords", {}).get("use_reentrant")))
        return plain(*arguments, **options)

    module._gradient_checkpointing_func = noting  # noqa: SLF001


def watch_engine(seen: EngineObservations, engine: Any) -> None:
    """Record the gradients with which DeepSpeed's optimizer is about to step."""
    wrapper = engine.optimizer
    step = wrapper.step

    def noting(*arguments: Any, **options: Any) -> Any:
        seen.gradients |= {_name(each.dtype) for each in _engine_gradients(engine)}
        return step(*arguments, **options)

    wrapper.step = noting


def _engine_gradients(engine: Any) -> Iterator[torch.Tensor]:
    """The accumulated gradients, which each wrapper of deepspeed 0.19.8 keeps elsewhere.

    `stage3.py`: `grad_partitions_flat_buffer`; `stage_1_and_2.py`: `averaged_gradients`, or the
    parameter's `grad_accum`; the others: the parameter's `grad`.
    """
    flat = getattr(engine.optimizer, "grad_partitions_flat_buffer", None)
    if flat is not None:
        yield flat
        return
    averaged = getattr(engine.optimizer, "averaged_gradients", None) or {}
    held = [each for group in averaged.values() for each in group or () if each is not None]
    if held:
        yield from held
        return
    for each in engine.module.parameters():
        gradient = getattr(each, "grad_accum", None)
        gradient = each.grad if gradient is None else gradient
        if gradient is not None:
            yield gradient


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def read(seen: EngineObservations, trainer: Any) -> dict[str, Any]:
    """The full report of the run, as JSON values."""
    engine = engine_of(trainer)
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    optimizer = engine.basic_optimizer if engine else _inner(trainer.optimizer)
    trained = [each for each in model.parameters() if each.requires_grad]
    accumulated = [
        b - a for a, b in zip(seen.begun, [*seen.begun[1:], len(seen.micro)], strict=True)
    ]
    return {
        "world_size": torch.distributed.get_world_size() if _is_distributed() else 1,
        "backend": torch.distributed.get_backend() if _is_distributed() else None,
        "engine": "deepspeed" if engine else "ddp" if _is_distributed() else "none",
        "micro": sorted(set(seen.micro)),
        "accumulation": sorted(set(accumulated)),
        "rates": seen.rates,
        "total_steps": trainer.state.max_steps,
        "later_rates": _later_rates(trainer.lr_scheduler, trainer.state.max_steps),
        "losses_finite": all(map(_is_finite, seen.losses)),
        "attention": model.config._attn_implementation,  # noqa: SLF001  where transformers keeps it
        "products": sorted(seen.products),
        "autocast": sorted(seen.autocast),
        "recomputed": seen.recomputed,
        "reentrant": sorted(seen.reentrant),
        "trained": sum(_size(each) for each in trained),
        "trained_tensors": len(trained),
        "lora": _lora(model),
        "trained_dtypes": _dtypes(trained),
        "frozen_dtypes": _dtypes(_whole(each for each in model.parameters())),
        "quantised": _quantised(model),
        "objective": _objective(trainer),
        "gradient_dtypes": sorted(seen.gradients),
        "optimizer": type(optimizer).__name__,
        "optimizer_dtypes": _dtypes(_moments(optimizer)),
        "hyperparameters": _hyperparameters(optimizer),
        "master_weights": _has_master_weights(engine, optimizer, trained),
        "clipping": engine.gradient_clipping() if engine else _clipping(seen),
        "seed": trainer.args.seed,
        "zero": _zero(engine) if engine else None,
    }


def engine_of(trainer: Any) -> Any:
    """The DeepSpeed engine that trains; None if there is none."""
    return trainer.model_wrapped if trainer.is_deepspeed_enabled else None


def _is_distributed() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


def _is_finite(value: float) -> bool:
    return value - value == 0


def _inner(optimizer: Any) -> Any:
    """The optimizer that accelerate has wrapped."""
    return getattr(optimizer, "optimizer", optimizer)


def _size(parameter: Any) -> int:
    """The number of elements of a parameter, even if ZeRO 3 has partitioned it."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def _dtypes(tensors: Iterable[Any]) -> list[str]:
    return sorted({_name(each.dtype) for each in tensors})


def _objective(trainer: Any) -> dict[str, Any]:
    """The objective of TRL's trainer, by the class of its arguments (trl 1.16.0)."""
    name = type(trainer.args).__name__
    if name != "DPOConfig":
        return {"kind": "reward" if name == "RewardConfig" else "sft", "reference": "none"}
    losses = trainer.args.loss_type
    before = trainer.args.precompute_ref_log_probs
    resident = getattr(trainer, "ref_model", None) is not None
    return {
        "kind": "dpo",
        "loss": losses[0] if isinstance(losses, list) and len(losses) == 1 else losses,
        "beta": float(trainer.args.beta),
        "reference": "precomputed" if before else "resident" if resident else "base",
    }


_PACKED: Final = ("Params4bit", "Int8Params")
"""The classes in which bitsandbytes 0.50.2 nn/modules.py keeps quantised weights."""


def _whole(parameters: Iterable[Any]) -> Iterator[Any]:
    """Frozen parameters that are not quantised."""
    for each in parameters:
        if not each.requires_grad and type(each).__name__ not in _PACKED:
            yield each


def _quantised(model: torch.nn.Module) -> dict[str, Any] | None:
    """How the layers of the base are stored; None if they are not quantised."""
    for module in model.modules():
        held: Any = getattr(module, "weight", None)
        if type(held).__name__ == "Int8Params":
            return {"format": "int8"}
        if type(held).__name__ == "Params4bit" and hasattr(module, "compute_dtype"):
            return {
                "format": held.quant_type,
                "double": bool(held.quant_state.nested),
                "compute": _name(module.compute_dtype),
                "storage": _name(held.quant_storage),
            }
    return None


def _moments(optimizer: Any) -> Iterator[torch.Tensor]:
    """The optimizer state that grows with the parameters; step counters are left out."""
    for state in optimizer.state.values():
        for value in state.values() if isinstance(state, dict) else ():
            if isinstance(value, torch.Tensor) and value.dim() > 0:
                yield value


def _hyperparameters(optimizer: Any) -> dict[str, Any]:
    groups = optimizer.param_groups
    betas = groups[0].get("betas", (None, None))
    return {
        "beta1": betas[0],
        "beta2": betas[1],
        "epsilon": groups[0].get("eps"),
        "weight_decay": max(each.get("weight_decay", 0.0) for each in groups),
        "fused": bool(groups[0].get("fused")),
    }


def _later_rates(scheduler: Any, total: int) -> list[list[float]]:
    """Learning rates after the rehearsed steps, computed by the schedule's own functions."""
    inner = getattr(scheduler, "scheduler", scheduler)
    shapes = getattr(inner, "lr_lambdas", None)
    if not shapes:
        return []
    steps = sorted({total // 4, total // 2, max(total - 1, 0)})
    return [[step, float(inner.base_lrs[0] * shapes[0](step))] for step in steps]


def _lora(model: Any) -> dict[str, Any] | None:
    """The settings of the adapter that PEFT added; None if there is none."""
    held = getattr(model, "peft_config", {}).get("default")
    if held is None:
        return None
    names = ("r", "lora_alpha", "lora_dropout", "bias", "use_rslora", "use_dora")
    return {name: getattr(held, name) for name in names}


def _has_master_weights(engine: Any, optimizer: Any, trained: Iterable[Any]) -> bool:
    """Whether the optimizer steps copies of the parameters.

    Between steps, deepspeed 0.19.8 stage3.py keeps these copies outside of `param_groups`.
    """
    shards = getattr(engine and engine.optimizer, "fp16_partitioned_groups_flat", None)
    if shards is None:
        stepped = [each for group in optimizer.param_groups for each in group["params"]]
        return bool(_storages(stepped) - _storages(trained))
    return bool(_storages(engine.optimizer.fp32_partitioned_groups_flat) - _storages(shards))


def _storages(tensors: Iterable[torch.Tensor]) -> set[int]:
    return {each.untyped_storage().data_ptr() for each in tensors}


def _clipping(seen: EngineObservations) -> float:
    """The norm to which the Trainer clipped in every step; 0 if it did not."""
    limits = set(seen.clipped)
    return limits.pop() if len(limits) == 1 and len(seen.clipped) >= len(seen.rates) else 0.0


def _zero(engine: Any) -> dict[str, Any]:
    config = engine._config.zero_config  # noqa: SLF001  its only accessor for most fields
    offload = config.offload_optimizer, config.offload_param
    devices = [
        str(getattr(each.device, "value", each.device)) if each else "none" for each in offload
    ]
    return {
        "stage": engine.zero_optimization_stage(),
        "wrapper": type(engine.optimizer).__name__,
        "offload_optimizer": devices[0],
        "offload_param": devices[1],
        "global": engine.train_batch_size(),
        "micro": engine.train_micro_batch_size_per_gpu(),
        "accumulation": engine.gradient_accumulation_steps(),
        **{name: getattr(config, name) for name in _STILL_ZERO},
    }
