"""The dtype of each kind of training state, by engine, method and precision."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.workload import Workload
from tunec.compiler.ir.slots import Adapter, Precision, States, Zero
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.terms import STEPS_IN_BACKWARD, Engine, FloatDtype, OptimizerName, StateDtype

_MOMENTS: dict[OptimizerName, StateDtype] = {
    "adamw_8bit": "int8",
    "paged_adamw_8bit": "int8",
    "lion_8bit": "int8",
    "paged_lion_8bit": "int8",
    "adamw_bf16": "bf16",
    "adalomo": "fp32",
}


@cached(256)
def states_of(workload: Workload, engine: Engine, stage: int, *, fsdp: int = 0) -> States:
    """Follow what the engine and the adapter library do to the dtypes.

    `stage` is ZeRO's, `fsdp` the version of FSDP.

    FSDP computes in copies of the compute dtype, and accelerate makes what is trained fp32 where
    precision is mixed (0.30.1 to 1.15.0 accelerator.py `prepare_model`; from 1.6
    utils/fsdp_utils.py `fsdp2_prepare_model`), so that the model may be loaded in that dtype.
    """
    precision, name = workload.precision, workload.optimizer.name
    if engine == "fsdp" and workload.architecture.kind == "diffusion":
        states = _mixed(precision.compute, precision.compute, name)
        return _left_narrow(states) if fsdp == 2 and _widens_nothing(workload) else states
    pure = engine != "deepspeed" and _is_pure(workload.architecture.kind, precision)
    casts = workload.version("axolotl") is not None
    pure = pure or (name in STEPS_IN_BACKWARD and precision.compute == "bf16" and not casts)
    if name == "adamw_bf16" or pure:
        return _pure_bf16(name)
    if engine == "deepspeed":
        return _deepspeed(workload, stage)
    if workload.version("axolotl") is not None:
        return _by_axolotl(workload, engine, fsdp)
    if workload.version("unsloth") is not None:
        return _by_unsloth(workload)
    if (verl := workload.version("verl")) is not None:
        return _by_verl(workload, verl)
    if workload.version("nemo-automodel") is not None:
        return _by_nemo(workload, engine)
    loaded = "fp32" if _is_loaded_unasked(workload) else precision.compute
    if engine == "fsdp" and workload.adapter.kind == "none":
        states = _mixed(precision.compute, loaded, name)
        return _left_narrow(states) if fsdp == 2 and _widens_nothing(workload) else states
    if workload.adapter.kind != "none":
        widens = workload.version("llamafactory") is not None
        states = _peft(precision.compute, loaded, workload.adapter, name, widens=widens)
        quantised, flat = workload.quantization.format != "none", engine == "fsdp" and fsdp == 1
        return _by_trl(states, workload) if quantised and not flat else states
    return _mixed(precision.compute, "fp32", name)


def _by_verl(workload: Workload, verl: Version) -> States:
    """Fully trained weights are fp32; a base under adapters has the compute dtype.

    verl 0.8.0 to 0.9.1 workers/engine/fsdp/transformer_impl.py `_build_module`: nothing is cast
    after loading. Since 0.9.0 `_build_lora_module` gives adapters the base's dtype. fp16 needs fp32
    parameters, since torch's scaler by default unscales no others.
    """
    compute, name = workload.precision.compute, workload.optimizer.name
    if workload.adapter.kind == "none" or compute == "fp16":
        return _mixed(compute, "fp32", name)
    states = _peft(compute, compute, workload.adapter, name)
    return _left_narrow(states) if verl >= _CASTS_ADAPTERS else states


_CASTS_ADAPTERS: Final = Version("0.9")


def _by_nemo(workload: Workload, engine: Engine) -> States:
    """Over shards in fp32 what is trained in full; adapters like their base; one process as loaded.

    nemo-automodel 0.5.0 to 0.7.0 components/_peft/lora.py: `lora_dtype` is that of the layer, or
    what 4 bits are expanded to; components/distributed/config.py `FSDP2Config`: mp_policy casts
    what is gathered, which stands here as autocast does for other trainers.
    """
    compute, name = workload.precision.compute, workload.optimizer.name
    if workload.adapter.kind == "none" and engine == "fsdp":
        return _mixed(compute, "fp32", name)
    states = _left_narrow(_mixed(compute, compute, name))
    return states if engine == "fsdp" else replace(states, autocast=False)


def _is_loaded_unasked(workload: Workload) -> bool:
    """Whether a script loads the model without a dtype, which then is fp32.

    trl 0.20.0 and 0.21.0 scripts/grpo.py; since 0.22 the trainer loads it as configured.
    """
    trl, own = workload.version("trl"), workload.generation
    return trl is not None and trl < _GRPO_LOADS_AS_TOLD and own is not None and own.sequences > 0


_GRPO_LOADS_AS_TOLD: Final = Version("0.22")
_WIDENS_NOTHING: Final = Version("1.13"), Version("1.14")


def _widens_nothing(workload: Workload) -> bool:
    """Whether accelerate claims to cast trained parameters to fp32 under FSDP 2, but does not.

    1.13.0 utils/fsdp_utils.py `fsdp2_prepare_model`: `param = param.to(torch.float32)` in a loop,
    which changes no parameter; 1.14.0 assigns `param.data`.
    """
    version, (first, last) = workload.version("accelerate"), _WIDENS_NOTHING
    return version is not None and first <= version < last


def _left_narrow(states: States) -> States:
    """Training in the dtype in which the model was loaded, gradients and moments included."""
    dtype = states.weights
    moments = states.optimizer if states.optimizer == "int8" else dtype
    return replace(states, trainable=dtype, gradients=dtype, optimizer=moments)


def _is_pure(kind: str, precision: Precision) -> bool:
    """Diffusion trainers hold what they train in the compute dtype.

    diffusers' `add_adapter` takes the base's dtype, and SimpleTuner (3.1.6, 4.10.1
    helpers/training/trainer.py `init_precision`) moves trained weights to `weight_dtype`.
    """
    return kind == "diffusion" and precision.compute == "bf16"


def _pure_bf16(name: OptimizerName) -> States:
    """Parameters, gradients and moments are bf16, without any fp32 copy.

    The moments of bitsandbytes' own optimizers are fp32 in any case (0.50.2 `optim/optimizer.py`,
    `Optimizer2State.init_state`: 32 `optim_bits`).
    """
    moments = _MOMENTS.get(name, "fp32" if name.endswith("_32bit") else "bf16")
    return States("bf16", "bf16", "bf16", master_weights=False, optimizer=moments, autocast=False)


def _deepspeed(workload: Workload, stage: int) -> States:
    """DeepSpeed casts the module and steps fp32 copies of what it casts or shards.

    deepspeed 0.19.8 runtime/engine.py `_configure_distributed_model` (the cast) and
    `_do_optimizer_sanity_check` (nothing wraps an fp32 optimizer without ZeRO);
    runtime/zero/stage_1_and_2.py `single_partition_of_fp32_groups` and stage3.py
    `_create_fp32_partitions` copy fp32 shards as well. The latter means to spare those, but
    compares a device with its name, which are never equal (seen in a run).
    """
    compute = workload.precision.compute
    trainable = "fp32" if stage == 3 and leaves_adapters(workload) else compute
    copies = stage > 0 or compute != "fp32"
    moments = _MOMENTS.get(workload.optimizer.name, "fp32")
    states = States(compute, trainable, compute, copies, moments, autocast=False)
    return states if stage else _unsharded(states, workload.version("deepspeed"))


def sums_in_fp32(workload: Workload, states: States, zero: Zero) -> bool:
    """Whether gradients of several micro batches are accumulated in fp32 although they are bf16.

    A bf16 sum loses terms below a 256th of it, so full training under ZeRO accumulates in fp32 if
    the sum stays on the devices. On the host, stages 1 and 2 accumulate in the parameters' dtype
    whatever the settings (deepspeed 0.19.8 runtime/zero/stage_1_and_2.py
    `async_accumulate_grad_in_cpu_via_gpu`). Before 0.19.7, Muon needs gradients of its momenta's
    dtype.
    """
    is_full = workload.adapter.kind == "none" and workload.architecture.kind != "diffusion"
    on_device = zero.stage > 0 and zero.offload_optimizer == "none"
    return (
        is_full and on_device and states.gradients == "bf16" and workload.optimizer.name != "muon"
    )


def leaves_adapters(workload: Workload) -> bool:
    """Whether ZeRO stage 3 trains adapters in the fp32 in which PEFT made them.

    They are added after zero.Init has built and split the base, and sharded as they are. TRL asks
    PEFT to make them in the base's dtype (1.7 to 1.16 trainer/sft_trainer.py).
    """
    if workload.adapter.kind == "none" or workload.architecture.kind == "diffusion":
        return False
    deepspeed, trl = workload.version("deepspeed"), workload.version("trl")
    is_cast = deepspeed is not None and deepspeed < _CASTS_NO_PARAMETER
    return not is_cast and (trl is None or trl < _TRL_MAKES_THEM_ALIKE)


_CASTS_NO_PARAMETER: Final = Version("0.19.2")
"""The first release that casts nothing of a module with parts built under zero.Init
(runtime/engine.py `_cast_module_mixed_precision`); before, `module.bfloat16()` cast adapters."""

_TRL_MAKES_THEM_ALIKE: Final = Version("1.7")


def _unsharded(states: States, version: Version | None) -> States:
    """Without ZeRO, DeepSpeed before 0.17.6 accumulates bf16 gradients in fp32 only.

    runtime/engine.py `_do_optimizer_sanity_check` raises for the other dtype.
    """
    if states.trainable != "bf16" or version is None or version >= Version("0.17.6"):
        return states
    return replace(states, gradients="fp32")


def _peft(
    compute: FloatDtype,
    loaded: FloatDtype,
    adapter: Adapter,
    name: OptimizerName,
    *,
    widens: bool = False,
) -> States:
    """PEFT keeps adapters in fp32 over a base as it is loaded (`autocast_adapter_dtype`).

    With fp16, modules trained in full must be fp32 too: torch's GradScaler refuses fp16 gradients
    (torch/amp/grad_scaler.py `_unscale_grads_`), and PEFT copies them in the base's dtype.
    `widens`: the trainer makes them fp32 by itself (llamafactory 0.9.1 to 0.9.5 model/adapter.py
    `init_adapter`).
    """
    upcast = compute == "fp16" and bool(adapter.also_train) and not widens
    return _mixed(compute, "fp32" if upcast else loaded, name)


_TRL_CASTS_ADAPTERS: Final = Version("0.26")
_TRL_CASTS_ADAPTERS_OF_PAIRS: Final = Version("0.29")


def makes_adapters_bf16(trl: Version, *, of_pairs: bool) -> bool:
    """Whether a release of TRL trains adapters over a quantised base in bf16 (`_by_trl`)."""
    return trl >= (_TRL_CASTS_ADAPTERS_OF_PAIRS if of_pairs else _TRL_CASTS_ADAPTERS)


def prepares_for_bits(workload: Workload) -> bool:
    """Whether TRL makes fp32 of all that is not quantised, though FSDP is to shard it.

    peft utils/other.py `prepare_model_for_kbit_training`. Where the packed base lies on the host,
    trl 0.8.6 to 0.25.1 leaves it out (`is_sharded_qlora`: trainer/sft_trainer.py, from 0.18
    models/utils.py), but not for pairs (trainer/dpo_trainer.py until 0.28).
    """
    trl = workload.version("trl")
    return _is_dpo(workload) and trl is not None and not makes_adapters_bf16(trl, of_pairs=True)


def _is_dpo(workload: Workload) -> bool:
    """Whether pairs are for DPO's trainer, and not for that of reward models, which is as SFT's.

    trl 0.25.1 and 0.26.2 trainer/reward_trainer.py `__init__`.
    """
    of_pairs = workload.preference is not None and workload.preference.sequences > 1
    return of_pairs and workload.architecture.kind != "sequence-classifier"


def _by_trl(states: States, workload: Workload) -> States:
    """What TRL's trainers do to a quantised model with adapters.

    Up to 0.25 `prepare_model_for_kbit_training` (peft utils/other.py) makes fp32 of all that is not
    quantised; since 0.26 adapters are bf16 (trainer/sft_trainer.py and grpo_trainer.py; in
    dpo_trainer.py, 0.28.0 still calls the former, since 0.29), and their moments like them, as a
    run showed. FSDP 1 has no part in it: what is trained becomes fp32 (`states_of`), and a unit of
    several dtypes is none (`prepares_for_bits`).
    """
    trl, name = workload.version("trl"), workload.optimizer.name
    if trl is None:
        return states
    if not makes_adapters_bf16(trl, of_pairs=_is_dpo(workload)):
        return replace(states, weights="fp32")
    moments = _pure_bf16(name).optimizer
    return replace(states, trainable="bf16", gradients="bf16", optimizer=moments)


_AXOLOTL_CASTS_ADAPTERS_OF_PAIRS: Final = Version("0.15")
"""The first release that brings a trl of `_TRL_CASTS_ADAPTERS_OF_PAIRS`: requirements.txt."""


def _by_axolotl(workload: Workload, engine: Engine, fsdp: int) -> States:
    """Weights are loaded in the compute dtype, and trained so unless an adapter is.

    axolotl 0.13.2 to 0.19.0 utils/config/__init__.py `resolve_dtype`; monkeypatch/accelerate/
    fsdp2.py `fsdp2_prepare_model` widens nothing. Of a quantised base, `prepare_model_for_kbit_
    training` widens only what loaders/model.py `_configure_embedding_dtypes` narrows again; pairs
    are for TRL's trainer, which is given the adapter's configuration (train.py). Its trainers of
    pairs, of answers and of reward models cast adapters over a quantised base (`_by_trl`).
    """
    compute, name = workload.precision.compute, workload.optimizer.name
    if workload.adapter.kind != "none":
        states = _peft(compute, compute, workload.adapter, name)
        return _compared_by_axolotl(states, workload) if workload.preference else states
    if compute == "fp32" or (engine == "fsdp" and fsdp == 1):
        return _mixed(compute, compute, name)
    return replace(_pure_bf16(name), autocast=True)


def _compared_by_axolotl(states: States, workload: Workload) -> States:
    version = workload.version("axolotl")
    if workload.quantization.format == "none" or version is None:
        return states
    if _is_dpo(workload) and version < _AXOLOTL_CASTS_ADAPTERS_OF_PAIRS:
        return replace(states, weights="fp32")
    moments = _pure_bf16(workload.optimizer.name).optimizer
    return replace(states, trainable="bf16", gradients="bf16", optimizer=moments)


def _by_unsloth(workload: Workload) -> States:
    """Adapters are fp32 over a base in 16 bits; in full all is bf16 but norms, under autocast.

    unsloth_zoo 2026.9.7 to 2026.10.9 training_utils.py `prepare_model_for_training`: what is
    trained becomes fp32 where the model was loaded in fp16.
    """
    compute, name = workload.precision.compute, workload.optimizer.name
    if workload.adapter.kind != "none":
        return _peft(compute, compute, workload.adapter, name)
    full = replace(_pure_bf16(name), autocast=True)
    return full if compute == "bf16" else _mixed(compute, "fp32", name)


def _mixed(compute: FloatDtype, weights: FloatDtype, name: OptimizerName) -> States:
    """torch autocast over fp32 trained parameters."""
    moments = _MOMENTS.get(name, "fp32")
    return States(weights, "fp32", "fp32", False, moments, autocast=compute != "fp32")
