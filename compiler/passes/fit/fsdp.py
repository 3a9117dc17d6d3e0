"""FSDP settings that follow from version, sharding and offload; without FSDP all are off."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.fsdp_units import embedding_in_two_units, has_buffers
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.modules import is_stack
from tunec.compiler.analyses.memory.terms.fsdp_ends import head_of
from tunec.compiler.analyses.memory.workload import NO_FSDP, USUAL_FSDP, Workload
from tunec.compiler.ir.slots import Fsdp
from tunec.compiler.passes.fit.states import prepares_for_bits
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.terms import Checkpointing, FsdpSharding, StateDict

Kind = tuple[int, FsdpSharding, bool]
"""Version, sharding, and whether shards are offloaded."""

NOT: Final[Kind] = (0, "none", False)
"""The kind for any other engine."""

_FIRST: Final = {"accelerate": Version("1.6"), "transformers": Version("5.0")}
"""The first releases whose own files can ask for FSDP 2: accelerate utils/dataclasses.py
`FullyShardedDataParallelPlugin`; transformers training_args.py `_process_fsdp_args`."""
_FULL_FROM: Final = {"accelerate": Version("1.7"), "transformers": Version("5.10")}
"""The first releases that save one full file under FSDP 2: accelerate 1.6 refuses it
(`set_state_dict_type`); before 5.10 transformers' `_process_fsdp_args` has no `state_dict_type`, so
that accelerate's default holds, which is SHARDED_STATE_DICT."""
_LOADS_ON_ONE: Final = {"transformers": Version("4.41")}
"""The first release whose fsdp_config has `cpu_ram_efficient_loading`."""

_FINDS_BY_PLACE: Final = Version("0.21")
"""The first release of PEFT that finds an adapter's tensors by the names of the model's modules:
peft 0.21.0 to 0.21.2 tuners/tuners_utils.py `_get_tuner_state_dict_key_prefixes`; until 0.20.0 by
the names of the tensors. In the names of modules are the wrappers that FSDP 1, and FSDP's own
recomputation, put around layers; in those of a state dict they are not."""


def usual_version(workload: Workload, units: Sequence[str] | None = None) -> int:
    """2, unless a named release lacks it, or only version 1 can split embedding and head."""
    if _is_older(workload, _FIRST):
        return 1
    is_split = _embedding(2, workload, units) or _head(2, workload)
    return 1 if is_split and not _embedding(1, workload, units) else 2


def _is_older(workload: Workload, first: Mapping[str, Version]) -> bool:
    """Whether a named release is older than the first one that has the feature."""
    named = ((workload.version(name), version) for name, version in first.items())
    return any(known is not None and known < version for known, version in named)


def kinds() -> Iterator[Kind]:
    """Every kind of FSDP, the newest version first."""
    for version in (2, 1):
        for sharding in ("full", "grad_op", *(("hybrid", "none") if version == 1 else ())):
            for offload in (False, True):
                yield version, sharding, offload


@cached(256)
def fsdp_of(kind: Kind, checkpointing: Checkpointing, workload: Workload) -> Fsdp:
    """Settings for a kind of FSDP.

    A unit a layer, by the model's own `_no_split_modules` or, where that names classes which the
    model does not have, by the classes of its layers. The backward pass gathers ahead, as
    torch does by default (2.13 `FullyShardedDataParallel(backward_prefetch=BACKWARD_PRE)`, and
    version 2 always); `use_orig_params`, without which FSDP 1 refuses a unit that is trained in
    part. Rank 0 alone reads the weights (`_loads_on_one`). Layers recompute by
    FSDP's own wrapper: the model's gathers each unit once more (transformers issue 30404). They do
    not where PEFT would then save no adapter.
    """
    version, sharding, offload = kind
    if not version:
        return NO_FSDP
    return replace(
        USUAL_FSDP,
        version=version,
        sharding=sharding,
        offload_params=offload,
        wrap_classes=workload.architecture.layer_classes,
        efficient_loading=_loads_on_one(version, workload),
        state_dict=_state_dict(version, workload),
        checkpointing=checkpointing == "layer" and not _loses_wrapped_adapters(workload),
    )


def _loads_on_one(version: int, workload: Workload) -> bool:
    """Whether the trainer has such a setting, and the state of the model can be sent.

    Axolotl's own loader sends buffers too (0.16.1 to 0.19.0 monkeypatch/accelerate/fsdp2.py), and
    a quantised base is sent by none (accelerate 1.15 `fsdp2_prepare_model`).
    """
    if _is_older(workload, _LOADS_ON_ONE):
        return False
    sends = version == 1 or workload.quantization.format != "none"
    own = workload.version("axolotl") is not None
    return sends or own or not has_buffers(workload.architecture)


def _state_dict(version: int, workload: Workload) -> StateDict:
    """Full, which any program can load, if the trainer has such a setting."""
    return "sharded" if version == 2 and _is_older(workload, _FULL_FROM) else "full"


def impossible_fsdp(
    kind: Kind, workload: Workload, *, width: int, nodes: int, units: Sequence[str] | None = None
) -> str | None:
    """Why a kind of FSDP cannot run or is pointless; None if it can. `units`: the named classes."""
    version, sharding, _ = kind
    if width == 1:
        return "there is only one device, so there is nothing to shard over"
    if sharding == "hybrid" and nodes == 1:
        return "there is only one node, where hybrid is the same as full sharding"
    return (
        _quantized(version, workload)
        or _optimizer(version, workload)
        or _saving(version, workload)
        or _experts(version, workload)
        or _writing(version, workload)
        or _embedding(version, workload, units)
        or _head(version, workload)
        or _hearing(version, workload)
    )


def _embedding(version: int, workload: Workload, units: Sequence[str] | None) -> str | None:
    released = workload.version("accelerate")
    return embedding_in_two_units(workload.architecture, version, released, units)


def _head(version: int, workload: Workload) -> str | None:
    """A trained head of a unit that is never called: its gradient is one rank's, which no one sums.

    trl 1.7 to 1.16, `lm_head.weight.full_tensor()`: the backward pass of torch 2.13
    (`distributed/tensor/_api.py`, `_ToTorchTensor`) takes each rank's share of its own gradient. On
    two ranks it differs from the mean, and equals the gradient of the rank's own batch.
    """
    if version != 2 or head_of(workload, replace(USUAL_FSDP, version=2)) == "unit":
        return None
    if not count(workload).head:
        return None
    return (
        "TRL's loss in chunks reads the trained head past FSDP 2, and no gradient of it is summed"
    )


def _hearing(version: int, workload: Workload) -> str | None:
    """Why an audio encoder is excluded: FSDP 2 casts each layer's inputs, as a trace showed."""
    if version == 2 and workload.architecture.source:
        return "what layers keep under FSDP 2 of an encoder that hears is not counted"
    return None


def _loses_wrapped_adapters(workload: Workload) -> bool:
    """Whether PEFT saves an empty file of an adapter whose layers are wrapped.

    Seen with peft 0.21.2 on two ranks of FSDP 2 with FSDP's recomputation: no tensor is saved.
    """
    version = workload.version("peft")
    return version is not None and version >= _FINDS_BY_PLACE and bool(workload.adapted)


def _saving(version: int, workload: Workload) -> str | None:
    """Why FSDP 1 is excluded with adapters that PEFT would not find below its wrappers."""
    if version == 1 and _loses_wrapped_adapters(workload):
        return "peft 0.21 saves no tensor of an adapter below FSDP 1's wrappers; 0.20 does"
    return None


def _experts(version: int, workload: Workload) -> str | None:
    """Why FSDP 1 is excluded with adapters on experts that are one tensor.

    Each matrix of an adapter is a unit (peft 0.21.2 utils/other.py `fsdp_auto_wrap_policy`), which
    is gathered when it is called, and `ParamWrapper.get_delta_factors` (tuners/lora/layer.py) reads
    its weight without a call: "shape '[64, -1, 360448]' is invalid" in a trace of DeepSeek-V2-Lite.
    """
    if version == 1 and any(map(is_stack, workload.adapted)):
        return "PEFT reads adapters of fused experts without calling the units FSDP 1 makes of them"
    return None


def _writing(version: int, workload: Workload) -> str | None:
    """Why FSDP 2 cannot generate with adapters: peft 0.21's `generate` calls the base.

    FSDP 2 gathers its root unit, with the final norm and whatever is in no layer, when the wrapped
    model is called, and that is PEFT's model (`peft_model.py`). A run on real tensors fails with
    "mixed torch.Tensor and DTensor" (torch 2.13). FSDP 1 gathers its root beforehand
    (`summon_full_params`).
    """
    own = workload.generation
    writes = workload.evaluated is not None or (own is not None and own.sequences > 0)
    if version == 2 and writes and workload.adapted:
        return "`generate` passes by PEFT's model, whose call is what FSDP 2 gathers its root for"
    return None


def _quantized(version: int, workload: Workload) -> str | None:
    quantization = workload.quantization
    if quantization.format == "int8":
        return "FSDP cannot shard int8 weights, whose scales are no parameters"
    if quantization.format != "none" and quantization.storage is None:
        # bitsandbytes docs/source/fsdp_qlora.md; accelerate 1.15 utils/fsdp_utils.py
        # `fsdp2_prepare_model`: uint8 weights are left whole on every rank
        return "FSDP shards packed weights only in a float dtype: pin quantization.storage"
    if quantization.format != "none" and version == 1 and prepares_for_bits(workload):
        # torch 2.13 distributed/fsdp/_flat_param.py `_validate_tensors_to_flatten`
        return "TRL keeps norms in fp32 beside packed weights, and FSDP 1 flattens only one dtype"
    return None


def _optimizer(version: int, workload: Workload) -> str | None:
    name = workload.optimizer.name
    if name == "adamw_bf16":
        return "accelerate makes what FSDP trains fp32, and adamw_bf16 steps bf16 parameters only"
    if name == "adafactor":
        return "FSDP's shards contain no whole rows and columns for Adafactor to factor"
    if name.endswith(("_8bit", "_32bit")) and version == 2:
        return f"{name} updates raw device memory, and the parameters of FSDP 2 are DTensors"
    if name.endswith(("_8bit", "_32bit")):
        # torch 2.13 distributed/fsdp/_optim_utils.py `_flatten_optim_state`: shapes must match
        return f"a checkpoint of FSDP 1 cannot hold the block-wise states of {name}"
    return None
