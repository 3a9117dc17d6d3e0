"""Which dtype each kind of training state has, by engine, method and precision."""

from dataclasses import replace

from packaging.version import Version

from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import Adapter, Precision, States
from tunec.schemas.terms import Engine, FloatDtype, OptimizerName, StateDtype

_MOMENTS: dict[OptimizerName, StateDtype] = {
    "adamw_8bit": "int8",
    "paged_adamw_8bit": "int8",
    "adamw_bf16": "bf16",
}


def states_of(workload: Workload, engine: Engine, stage: int) -> States:
    """Follow what the engine and the adapter library do to the dtypes; `stage` is ZeRO's."""
    precision, name = workload.precision, workload.optimizer.name
    pure = engine != "deepspeed" and _is_pure(workload.architecture.kind, precision)
    if name == "adamw_bf16" or pure:
        return _pure_bf16(name)
    if engine == "deepspeed":
        states = _deepspeed(precision.compute, name)
        return states if stage else _unsharded(states, workload.version("deepspeed"))
    if workload.adapter.kind != "none":
        return _peft(precision.compute, workload.adapter, name)
    return _mixed(precision.compute, "fp32", name)


def _is_pure(kind: str, precision: Precision) -> bool:
    """Diffusion trainers hold what they train in the compute dtype.

    diffusers' `add_adapter` takes the base's dtype, and SimpleTuner (3.1.6, 4.10.1
    helpers/training/trainer.py `init_precision`) moves trained weights to `weight_dtype`.
    """
    return kind == "diffusion" and precision.compute == "bf16"


def _pure_bf16(name: OptimizerName) -> States:
    """Parameters and gradients are bf16, with no fp32 copy anywhere, and moments like them.

    bitsandbytes' own are fp32 whatever the parameters are (0.50.2 `optim/optimizer.py`,
    `Optimizer2State.init_state`: 32 `optim_bits`).
    """
    moments = _MOMENTS.get(name, "fp32" if name == "paged_adamw_32bit" else "bf16")
    return States("bf16", "bf16", "bf16", master_weights=False, optimizer=moments, autocast=False)


def _deepspeed(compute: FloatDtype, name: OptimizerName) -> States:
    """DeepSpeed casts the whole module and keeps fp32 copies in its optimizer.

    deepspeed 0.19.8 runtime/engine.py `_configure_distributed_model` (module.half/bfloat16);
    runtime/zero/stage_1_and_2.py `single_partition_of_fp32_groups`.
    """
    moments = _MOMENTS.get(name, "fp32")
    return States(compute, compute, compute, True, moments, autocast=False)


def _unsharded(states: States, version: Version | None) -> States:
    """Without ZeRO, DeepSpeed before 0.17.6 accumulates bf16 gradients in fp32 only.

    runtime/engine.py `_do_optimizer_sanity_check`: NotImplementedError for the other dtype.
    """
    if states.trainable != "bf16" or version is None or version >= Version("0.17.6"):
        return states
    return replace(states, gradients="fp32")


def _peft(compute: FloatDtype, adapter: Adapter, name: OptimizerName) -> States:
    """PEFT keeps adapters in fp32 over a base in the compute dtype (`autocast_adapter_dtype`).

    With fp16, modules trained in full must be fp32 too: torch's GradScaler refuses fp16 gradients
    (torch/amp/grad_scaler.py `_unscale_grads_`), and PEFT copies them in the base's dtype.
    """
    upcast = compute == "fp16" and bool(adapter.also_train)
    return _mixed(compute, "fp32" if upcast else compute, name)


def _mixed(compute: FloatDtype, weights: FloatDtype, name: OptimizerName) -> States:
    """torch autocast over fp32 trained parameters."""
    moments = _MOMENTS.get(name, "fp32")
    return States(weights, "fp32", "fp32", False, moments, autocast=compute != "fp32")
