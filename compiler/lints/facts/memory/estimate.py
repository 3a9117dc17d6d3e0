"""A run for the memory account, from the slots that its files decide.

If a file leaves open what needs memory, the cheaper reading is assumed, so that what does not fit
here does not fit at all: no states in fp32 unless requested, all devices of the hardware in one
run, LoRA adapters of size 0 if their targets are not given.
"""

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.lora import is_true, trains_whole
from tunec.compiler.lints.facts.memory.parameters import (
    ELSEWHERE,
    Trained,
    compute_of,
    kernel_of,
    optimizer_of,
    recomputes_unasked,
    states_for,
    trained,
)
from tunec.compiler.lints.facts.memory.samples import (
    answers_of,
    encoders,
    evaluation_batch,
    kept_encoders,
    loss_of,
    pairs_of,
    scores_texts,
    seen,
    text_tokens,
    within,
)
from tunec.compiler.lints.facts.memory.scripts import script_of, spreads_by_itself, text_script_of
from tunec.compiler.lints.facts.sharding import fsdp_of, is_fully_sharded
from tunec.compiler.lints.facts.training_loop import is_number, longest, reentrant
from tunec.schemas.frozen import replace
from tunec.schemas.spec_sections import ONE_NUMBER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tunec.compiler.analyses.memory.account import Account
    from tunec.compiler.analyses.memory.workload import Layout, Workload
    from tunec.compiler.ir.slots import ActivationCheckpointing, Data
    from tunec.schemas.models.architecture import Architecture

_FROZEN_PARTS = ("unfrozen_parameters", "use_galore", "use_badam", "use_apollo", "use_unsloth")
"""Keys that exclude most of the model, or of its optimizer's states."""
_SWITCHES = ("tune_mm_mlp_adapter", "freeze_backbone", "freeze_llm", "freeze_vlm")
"""Keys that do so where they are true: haotian-liu/LLaVA c121f04 llava/train/train.py,
2U1/Qwen-VL-Series-Finetune 93fef86 src/params.py, OpenGVLab/InternVL."""


_MODE: Final = "activation_checkpointing.mode"
_WRITERS = ("causal-lm", "vision-language")
_DENOISERS = ("simpletuner", "diffusers-run", "sd-scripts", "musubi-tuner", "ai-toolkit")
_OFF = ("false", "none", "0", "1", "")


class Estimate(Struct, frozen=True):
    """The memory account of a run, and the device that it has to fit."""

    account: "Account"
    capacity: int
    """Bytes of the largest device."""
    device: str
    """The device's title."""
    is_assumed: bool = False
    """Whether nothing says how much of the model is trained, so that all of it is assumed."""
    knows_length: bool = True
    """Whether a sample's length or image is known; if not, only permanent memory is compared."""

    @property
    def still_bytes(self) -> int:
        """Bytes of the highest phase without any sample."""
        return max(line.fixed_bytes for line in self.account.lines if not line.evaluates)

    @property
    def _apart(self) -> "Mapping[str, int]":
        from tunec.compiler.analyses.memory.margin import apart

        margin = self.account.workload.margin
        return apart(
            1, self.account.vendor, margin
        )  # what collectives take differs by release and link

    @property
    def beside_bytes(self) -> int:
        """The least bytes that a process needs on the device besides its tensors."""
        return sum(self._apart.values())

    @property
    def beside(self) -> str:
        """Its names."""
        return ", ".join(self._apart)

    @property
    def still_terms(self) -> dict[str, int]:
        """Its terms, the largest first."""
        lines = [line for line in self.account.lines if not line.evaluates]
        most = max(lines, key=lambda line: line.fixed_bytes)
        return dict(sorted(most.terms(0).items(), key=lambda term: -term[1]))


def estimate(run: LintContext) -> Estimate | None:
    """The memory account of a run; None if too little of it is known."""
    architecture = _architecture(run)
    device = _device(run)
    if architecture is None or device is None or _is_out_of_scope(run) or _is_split_unseen(run):
        return None
    if device.number > 1 and spreads_by_itself(run):
        return None  # no device has to hold it all, and which layers go where is not told
    parts = trained(run, architecture)
    layout = None if parts is None else _layout(run, architecture, parts)
    if parts is None or layout is None:
        return None
    from tunec.compiler.analyses.memory.account import account

    is_pictured = layout[0].data.image_tokens > 0
    return Estimate(
        account(*layout),
        device.memory,
        device.title,
        is_assumed=not parts.is_told and not _trains_all(run),
        knows_length=_is_denoiser(run) or _length(run, parts) is not None or is_pictured,
    )


_WHOLE: Final = re.compile(r"(^|/)(run_clm|fastchat/train/train(_mem|_xformers)?)\.py$")
"""Scripts without support for adapters: huggingface/transformers 00d481d examples/pytorch/
language-modeling/run_clm.py, lm-sys/FastChat 047b6e4 fastchat/train/train.py."""


def _trains_all(run: LintContext) -> bool:
    """Whether a script is started that trains the whole model, whatever its flags."""
    scripts = (each.value("script") for each in run.of("launch"))
    words = (str(word) for script in scripts if isinstance(script, list) for word in script[:1])
    return any(_WHOLE.search(word) for word in words)


def _architecture(run: LintContext) -> "Architecture | None":
    """The architecture of a language model, with or without vision, or of a denoiser."""
    model = run.model
    if model is None or not (model.architecture.kind in _WRITERS or _is_denoiser(run)):
        return None
    sees = model.architecture.kind == "vision-language"
    is_quantized = run.value("quantization.format", "none") != "none"
    held = _without_packed(model.architecture) if sees and is_quantized else model.architecture
    return _scored(held) if scores_texts(run) else held


def _scored(architecture: "Architecture") -> "Architecture":
    """A reward model: one number for each sequence, if the head of such models is known."""
    from tunec.compiler.analyses.architecture.classifiers import for_task, has_head, with_head

    is_known = has_head(architecture.family, "sequence-classifier")
    return with_head(architecture, for_task({}, ONE_NUMBER)) if is_known else architecture


def _without_packed(architecture: "Architecture") -> "Architecture":
    """A model without the layers of its tower, which may be quantised with the others or not.

    transformers 5.23 `quantizers/base.py` `get_keys_to_not_convert` takes out the head alone, and a
    run's `llm_int8_skip_modules` may take out the tower.
    """
    eyes = ("vision", "projector")
    kept = (each for each in architecture.modules if each.part not in eyes or each.kind != "linear")
    return replace(architecture, modules=tuple(kept))


def _is_denoiser(run: LintContext) -> bool:
    """Whether SimpleTuner trains a denoiser, whose samples are images without text."""
    model = run.model
    return (
        model is not None and model.architecture.kind == "diffusion" and bool(run.of(*_DENOISERS))
    )


class _Device(NamedTuple):
    """The largest device of the hardware, and the total number of devices."""

    memory: int
    title: str
    number: int


def _device(run: LintContext) -> _Device | None:
    cluster, devices = run.environment.cluster, run.environment.devices
    if cluster is None:
        return None
    found = [
        (group.memory or devices[group.device].memory, devices[group.device].title)
        for node in cluster.nodes
        for group in node.accelerators
        if group.device in devices  # of a plan's own files, those that it uses
    ]
    return _Device(*max(found), cluster.device_count)


def _length(run: LintContext, parts: Trained) -> Any:
    """Tokens of the longest sample; None if no file has them."""
    found = longest(run)
    return parts.said.length if found is None else found


def _is_out_of_scope(run: LintContext) -> bool:
    """Paged states, methods that train a part, what no slot tells, and Unsloth's own kernels."""
    if run.of("unsloth"):
        return True
    part = any(run.said(kind, *_FROZEN_PARTS) for kind in ("trainer", "axolotl"))
    is_on = any(is_true(at.value) for key in _SWITCHES for at in run.each("hf", key))
    part = part or (is_on and script_of(run) is None)
    elsewhere = _is_denoiser(run) and _is_elsewhere(run)
    is_own = bool(run.of("hf", "minicpm-v")) or trains_whole(run)
    is_nobodys = run.value("adapter.kind") is None and not is_own
    is_nobodys = is_nobodys or (_is_left_open(run) and text_script_of(run) is None)
    return part or elsewhere or is_nobodys or optimizer_of(run) is None


def _is_left_open(run: LintContext) -> bool:
    """Whether a base is quantised, which needs an adapter for training, and none is named."""
    kind = run.slot("adapter.kind")
    is_unasked = kind is not None and kind.value == "none" and kind.rank == Rank.CONSUMER
    is_packed = run.value("quantization.format", "none") != "none"
    return is_unasked and is_packed and script_of(run) is None


_SPLITS: Final = ("deepspeed", "fsdp", "fsdp_config")


def _is_split_unseen(run: LintContext) -> bool:
    """Whether a file that shards is named and could not be read, or is only known at run time."""
    named = any(place.value for place in run.each("trainer", "deepspeed"))
    unseen = named and not run.of("deepspeed")
    return unseen or any(each.unknown.intersection(_SPLITS) for each in run.of("trainer"))


def _is_elsewhere(run: LintContext) -> bool:
    """Whether a denoiser is stored, updated or split in a way that no slot describes."""
    if run.value("quantization.format") is None or run.value("optimizer.name") is None:
        return True
    asked = ELSEWHERE.items()
    said = (at.value for kind, keys in asked for key in keys for at in run.each(kind, key))
    return any(value is True or str(value).lower() not in _OFF for value in said)


def _layout(
    run: LintContext, architecture: "Architecture", parts: Trained
) -> "tuple[Workload, Layout] | None":
    micro, sequence = parts.said.micro or run.value("batch.micro"), _length(run, parts)
    if sequence is None:
        sequence = 1  # nobody tells it; what stays, and what evaluation writes, may be too much
    compute, world = compute_of(run), run.value("parallel.world")
    numbers = (micro, 1 if _is_denoiser(run) else sequence, world)
    if compute is None or any(not isinstance(n, int) or n < 1 for n in numbers):
        return None
    from tunec.compiler.analyses.memory.workload import NO_FSDP, Layout
    from tunec.compiler.ir.slots import Batch, Parallel
    from tunec.compiler.passes.fit.zero import zero_of

    workload = _workload(run, architecture, parts, compute)
    on_deepspeed = bool(run.of("deepspeed")) or run.value("parallel.engine") == "deepspeed"
    sharded = not on_deepspeed and is_fully_sharded(run)
    fsdp = fsdp_of(run) if sharded else NO_FSDP
    if fsdp is None or (sharded and run.runs("accelerate<0.30") is True):
        return None
    if sharded and run.runs("transformers>=5.0") is None:
        versions = {**dict(workload.versions), **_LOADS_PACKED_APART}
        workload = replace(workload, versions=tuple(sorted(versions.items())))
    engine: Any = "ddp" if world > 1 else "none"
    engine = "deepspeed" if on_deepspeed else "fsdp" if sharded else engine
    stage = run.value("zero.stage", 0) if on_deepspeed else 0
    width = run.data_parallel or world
    zero = zero_of(
        stage,
        run.value("zero.offload_optimizer", "none"),
        run.value("zero.offload_param", "none"),
        hidden=architecture.hidden,
        trainable=sum(each.parameters for each in workload.trained) or 1,
        nvme_path=None,
    )
    zero = replace(zero, **_portions(run)) if stage else zero
    accumulation = run.value("batch.accumulation", 1)
    return workload, Layout(
        Parallel(engine, world, width, run.value("parallel.tensor", 1), 1),
        states_for(run, workload, engine, stage),
        zero,
        _recomputation(run, asked=bool(parts.said.recomputes), by_fsdp=fsdp.checkpointing),
        Batch(micro, accumulation, micro * accumulation * width, evaluation_batch(run, micro)),
        fsdp=fsdp,
        nodes=_nodes(run, world),
    )


def _recomputation(run: LintContext, *, asked: bool, by_fsdp: bool) -> "ActivationCheckpointing":
    """What is recomputed, and by which of torch's variants; FSDP's own wrapper has but one."""
    from tunec.compiler.ir.slots import ActivationCheckpointing

    recomputes = asked or recomputes_unasked(run) or by_fsdp
    mode: Any = "layer" if recomputes else run.value(_MODE, "layer")
    again = mode == "layer" and not by_fsdp and reentrant(run) is True
    return ActivationCheckpointing(mode, again, segment=1, gap=0, offload=_moves(run))


_LOADS_PACKED_APART: Final = {"transformers": "4.57.6"}
"""The release that FSDP is taken to run with where none is told: the last that moves each packed
weight to the host as it loads it (`loaded_whole`), the cheapest reading of the files."""

_PORTIONS: Final = (
    *("reduce_bucket", "allgather_bucket", "prefetch_bucket", "persistence_threshold"),
    *("max_live_parameters", "sub_group_size"),
)
_SWITCHED: Final = ("overlap_comm", "contiguous_gradients")


def _portions(run: LintContext) -> dict[str, Any]:
    """ZeRO's buckets from the file, or DeepSpeed's defaults, except for `auto`."""
    said = {name: run.value(f"zero.{name}") for name in (*_PORTIONS, *_SWITCHED)}
    sizes = {name: int(said[name]) for name in _PORTIONS if is_number(said[name])}
    return sizes | {name: said[name] for name in _SWITCHED if isinstance(said[name], bool)}


def _moves(run: LintContext) -> bool:
    """Whether activations are offloaded to host memory."""
    return run.value("activation_checkpointing.offload", False) is True


def _nodes(run: LintContext, world: int) -> int:
    cluster = run.environment.cluster
    return 1 if cluster is None else -(-world // min(each.device_count for each in cluster.nodes))


OWN_STATES: Final = ("axolotl", "llamafactory", "nemo-automodel", "unsloth", "verl")
"""Trainers with their own rules for optimizer states."""


def _workload(
    run: LintContext, architecture: "Architecture", parts: Trained, compute: Any
) -> "Workload":
    from tunec.compiler.analyses.measurements import margin_of
    from tunec.compiler.analyses.memory.workload import Workload
    from tunec.compiler.ir.slots import AttentionKernel, Optimizer, Precision, Quantization

    versions = {name: str(found.version) for name, found in run.releases.items()}
    for name in OWN_STATES:
        if not run.of(name):
            versions.pop(name, None)
    scaling: Any = "dynamic" if compute == "fp16" else "none"
    form: Any = parts.said.packed or run.value("quantization.format", "none") or "none"
    optimizer: Any = parts.said.optimizer or optimizer_of(run)
    return Workload(
        architecture=architecture,
        components=encoders(run) if _is_denoiser(run) else (),
        data=_data(run, architecture, _length(run, parts)),
        precision=Precision(compute, scaling, 16, 1000, 2, 1, False, False),
        attention=AttentionKernel(run.value("attention.implementation", "sdpa")),
        quantization=Quantization(form, run.value("quantization.double", True), compute, None),
        adapter=parts.adapter,
        optimizer=Optimizer(optimizer, kernel_of(run), 1e-5, 0.9, 0.999, 1e-8, 0.0, 1.0),
        adapted=parts.adapted,
        trained=parts.whole,
        versions=tuple(sorted(versions.items())),
        loss=loss_of(run),
        preference=pairs_of(run, parts.adapter.kind),
        evaluated=answers_of(run),
        kept_components=kept_encoders(run),
        margin=margin_of(run.environment.cluster.measured if run.environment.cluster else None),
        shares_host_memory=any(
            each.shares_host_memory for each in run.environment.devices.values()
        ),
    )


def _data(run: LintContext, architecture: "Architecture", length: int | None) -> "Data":
    """A sample of the largest length, with its image."""
    from tunec.compiler.ir.slots import Data

    packs = run.value("data.packing", False)
    if _is_denoiser(run):
        return Data("", (), (), (), None, None, None, None, None, 0, packs, *_drawn(run))
    pictures = within(architecture, length, seen(run, architecture))
    text = text_tokens(architecture, length, pictures)
    return Data("", (), (), (), None, None, None, None, None, text, packs, *pictures, 0)


def _drawn(run: LintContext) -> tuple[int, int, int, int, int, int]:
    """For a denoiser's sample: number, width, height, tokens of its reference images, frames."""
    from tunec.compiler.analyses.architecture.image_tokens import latent_tokens

    wide, high, model = run.value("data.image_width"), run.value("data.image_height"), run.model
    if not isinstance(wide, int) or not isinstance(high, int) or model is None:
        return 0, 0, 0, 0, 0, 0
    given = len(run.value("data.references", ())) if model.architecture.references else 0
    tokens = given * latent_tokens(model.architecture, wide, high)
    return 1 + given, wide, high, tokens, 0, run.value("data.frames", 0)
