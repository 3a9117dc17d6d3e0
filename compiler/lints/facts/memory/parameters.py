"""What a run trains and adapts, in which dtypes and states; flags of programs with own loops."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.facts.lora import is_true, trains_whole
from tunec.compiler.lints.facts.memory.scripts import (
    NOTHING_SAID,
    ScriptTask,
    asked,
    script_of,
    text_script_of,
)
from tunec.compiler.lints.facts.precision import as_loaded, weights_of
from tunec.compiler.lints.views import read_as, view
from tunec.compiler.target import File, Target
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.analyses.memory.workload import Workload
    from tunec.compiler.ir.slots import Adapter, States
    from tunec.schemas.models.architecture import Architecture, Module


_SEES: Final = "vision-language"
_FREEZES: Final = {"vision": "freeze_vision_tower", "projector": "freeze_multi_modal_projector"}
"""llamafactory 0.9.2 to 0.9.5 hparams/finetuning_args.py: both true by themselves; 0.9.1 trains the
projector unasked."""
_BLIND: Final = ("freeze_language_model", "train_mm_proj_only")


class Trained(Struct, frozen=True):
    """What is trained."""

    adapter: "Adapter"
    whole: "tuple[Module, ...]"
    """Modules whose own weights are trained."""
    adapted: "tuple[Module, ...]"
    is_told: bool
    """Whether any file says what is trained; if not, everything is."""
    said: ScriptTask = NOTHING_SAID
    """The other settings from a script's own flags."""


def trained(run: LintContext, model: "Architecture") -> Trained | None:
    """The parts of a model that a run trains.

    None if its language model is frozen, or one of a script's flags is only known at run time.
    """
    if has_script(run):
        said = asked_of(run)
        return None if said is None else _by_script(run, model, said)
    factory = next(iter(run.of("llamafactory")), None)
    if factory is not None and model.kind == _SEES:
        return _by_llamafactory(run, model, factory)
    found = _by_slots(run, model)
    block = next(iter(run.of("glm4")), None)
    return found if block is None else _without_tower(found, block)


def has_script(run: LintContext) -> bool:
    """Whether a script is started whose trained parts are known from its flags."""
    return script_of(run) is not None or text_script_of(run) is not None


def asked_of(run: LintContext) -> ScriptTask | None:
    """What the flags of such a script train; None if that is unknown, or there is none."""
    script, words = script_of(run), text_script_of(run)
    if script is not None:
        return asked(script)
    return words.asked() if words is not None else None


def _adapter(run: LintContext, kind: str, rank: int) -> "Adapter":
    from tunec.compiler.ir.slots import Adapter

    targets = run.value("adapter.targets", ()) or ()
    parameters = run.value("adapter.parameters", ()) or ()
    also = run.value("adapter.also_train", ()) or ()
    frozen = run.value("adapter.frozen", ()) or ()
    rank = rank if kind != "none" else 0
    named = (targets, parameters)
    return Adapter(kind, rank, 1.0, 0.0, *named, "none", False, False, "never", also, frozen, 0)  # type: ignore[arg-type]


def _by_slots(run: LintContext, model: "Architecture") -> Trained:
    from tunec.compiler.analyses.trainable import adapted_modules, trained_modules

    kind = run.value("adapter.kind", "none")
    adapter = _adapter(run, kind, run.value("adapter.rank", 0))
    every = (
        _linear(model)
        if _adapts_all(run)
        else adapted_modules(model, adapter.targets, adapter.parameters)
    )
    adapted = every if kind != "none" else ()
    return Trained(adapter, trained_modules(model, adapter), adapted, _is_told(run))


_OF_TRL: Final = re.compile(
    r"(\A|/)(trl|(run_)?(sft|dpo|grpo|kto|orpo|reward|rloo|gkd|ppo)\w*\.py)\Z"
)
"""trl 0.9 to 1.16 cli.py and scripts/, whose `use_peft` is false by default;
alignment-handbook's."""


def _is_told(run: LintContext) -> bool:
    """Whether any file says what is trained; a custom script with TRL's flags may not."""
    kind = run.slot("adapter.kind")
    if kind is None or kind.rank != Rank.CONSUMER:
        return kind is not None or trains_whole(run)
    if all(each.is_view or each.format != "shell" for each in run.of(*TRL)):
        return True
    scripts = (each.value("script") for each in run.of("launch"))
    words = [str(words[0]) for words in scripts if isinstance(words, list) and words]
    return bool(words) and all(map(_OF_TRL.search, words))


def _adapts_all(run: LintContext) -> bool:
    """Whether LLaMA-Factory adapts every linear layer with LoRA, its default.

    llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `lora_target`: "all".
    """
    said = [place.value for place in run.each("llamafactory", "lora_target")]
    return bool(run.of("llamafactory")) and said in ([], ["all"])


def _by_script(run: LintContext, model: "Architecture", said: ScriptTask) -> Trained:
    kind = "lora" if said.adapted else "none"
    whole = tuple(
        each
        for each in model.modules
        if each.part in said.whole or ("embedding" in said.whole and each.path == model.embedding)
    )
    adapted = tuple(
        each
        for each in _linear(model)
        if each.part in said.adapted and (said.names is None or _matches(said.names, each))
    )
    adapter = _adapter(run, kind, said.rank)
    return Trained(adapter, whole, adapted, is_told=True, said=said)


def _matches(pattern: str, module: "Module") -> bool:
    """Whether a regular expression matches a module's whole name; invalid ones match nothing."""
    try:
        return re.fullmatch(pattern, next(module.names())) is not None
    except (re.error, RecursionError, OverflowError):
        return False


def _linear(model: "Architecture") -> "tuple[Module, ...]":
    return tuple(
        each for each in model.modules if each.kind == "linear" and each.path != model.head
    )


def _by_llamafactory(run: LintContext, model: "Architecture", document: Document) -> Trained | None:
    """Names match any part of a module's name, and nothing in a frozen part.

    llamafactory 0.9.1 to 0.9.5 model/model_utils/visual.py `get_forbidden_modules`,
    `patch_target_modules`; misc.py `find_all_linear_modules`, which leaves out the projector.
    """
    if any(is_true(document.value(key)) for key in _BLIND):
        return None
    at = {part: document.get(key) for part, key in _FREEZES.items()}
    frozen = {part for part, said in at.items() if said is None or said.value is not False}
    kind = run.value("adapter.kind")
    if kind is None:
        return None
    adapter = _adapter(run, kind, run.value("adapter.rank", 0))
    if kind == "none":
        whole = tuple(each for each in model.modules if each.part not in frozen)
        return Trained(adapter, whole, (), is_told=True)
    named = str(document.value("lora_target", "all"))
    names = [] if named == "all" else [each.strip() for each in named.split(",") if each.strip()]
    frozen |= {"projector"} if not names else set()
    adapted = tuple(
        each
        for each in _linear(model)
        if each.part not in frozen and (not names or any(name in each.path for name in names))
    )
    return Trained(adapter, _by_slots(run, model).whole, adapted, is_told=True)


def _without_tower(found: Trained, block: Document) -> Trained:
    """GLM-4's `freezeV` freezes what is below the tower, including adapters.

    zai-org/GLM-4 3f79b54 finetune/finetune_vision.py `main`: model.transformer.vision.
    """
    if not is_true(block.value("freezeV")):
        return found
    eyes = ("vision", "projector")
    return replace(
        found,
        whole=tuple(each for each in found.whole if each.part not in eyes),
        adapted=tuple(each for each in found.adapted if each.part not in eyes),
    )


def compute_of(run: LintContext) -> Any:
    """The dtype of products.

    Without a flag GLM-4's scripts and LLaMA-Factory load in 16 bits, and compute so (llamafactory
    0.9.1 to 0.9.5 model/patcher.py `patch_config`: infer_optim_dtype of the model's own); qlora.py
    computes in fp32, of which the cheaper reading is 16 bits too.
    """
    told = run.value("precision.compute")
    if told is not None:
        return told
    if run.of("glm4"):
        return run.value("states.weights")
    if any(str(place.value) == "auto" for place in run.each("axolotl", "bf16")):
        return "bf16"  # as wide as fp16, which it is where the device has no bf16
    stored = run.model.stored_dtype if run.model is not None else None
    is_narrow = bool(run.of("llamafactory")) or text_script_of(run) is not None
    return stored if is_narrow and stored in ("bf16", "fp16") else as_loaded(run)


def optimizer_of(run: LintContext) -> str | None:
    """The optimizer's name, by default plain AdamW; None: its states are not known here."""
    name = run.value("optimizer.name")
    if name is None:
        said = run.said("trainer", "optim", "optimizer") or run.said("axolotl", "optimizer")
        return "adamw" if said is None and run.said("deepspeed", "optimizer.type") is None else None
    from tunec.compiler.analyses.memory.terms.optimizer import MOMENTS

    return str(name) if name in MOMENTS or name == "adafactor" else None


def kernel_of(run: LintContext) -> Any:
    """The optimizer's kernel: as written, or a named release's default; else the cheapest.

    deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_basic_optimizer`: FusedAdam, where its
    own file names an optimizer.
    """
    if run.said("deepspeed", "optimizer.type"):
        return "fused"
    asked = run.effective("trainer", "optim")
    is_sure = asked.is_written or run.release("transformers").is_named
    return _KERNELS.get(str(asked.value), "fused") if is_sure else "fused"


_KERNELS: Final = {"adamw_torch": "foreach", "adamw_hf": "loop"}
"""transformers 4.40.2 to 5.23.0 trainer.py `get_optimizer_cls_and_kwargs`; torch 2.0 to 2.13
optim/optimizer.py `_default_to_fused_or_foreach`."""


def states_for(run: LintContext, workload: "Workload", engine: Any, stage: int) -> "States":
    """DeepSpeed, FSDP and PEFT decide; without them, fp32 only if requested."""
    from tunec.compiler.ir.slots import States
    from tunec.compiler.passes.fit.states import states_of

    if engine in ("deepspeed", "fsdp") or workload.adapter.kind != "none" or _in_fp32(run):
        return states_of(workload, engine, stage)
    compute = workload.precision.compute
    moments: Any = "int8" if "8bit" in workload.optimizer.name else compute
    return States(compute, compute, compute, False, moments, autocast=False)


def _in_fp32(run: LintContext) -> bool:
    """fp16 scales fp32 gradients; diffusers and LLaMA-Factory cast trained weights."""
    if run.of("diffusers", "sd-scripts", "musubi-tuner") and not run.said(
        "sd-scripts", "full_bf16"
    ):
        return True
    if compute_of(run) != "bf16" or weights_of(run) == "fp32":
        return True
    pure = run.said("llamafactory", "pure_bf16")
    return bool(run.of("llamafactory")) and (pure is None or pure.value is not True)


_COOKBOOK: Final = "llama-cookbook"
_VISUALGLM: Final = "visualglm"
_OF_SAT: Final = "sat"
_KIND: Final = "own-loop"
_BLOCK: Final = "flags"
"""Where the tables of targets/llama_cookbook and targets/visualglm have the flags."""
_NAMED: Final = re.compile(r"visualglm", re.IGNORECASE)
_ADAPTERS: Final = ("use_lora", "use_qlora")
"""Without either the script trains nothing (THUDM/VisualGLM-6B e314fb9 finetune_visualglm.py
`disable_untrainable_params`), or an older one more than the account knows."""

_ZERO: Final[Mapping[str, Any]] = {
    "contiguous_gradients": False,
    "overlap_comm": True,
    "reduce_bucket_size": 40_000_000,
    "allgather_bucket_size": 100_000_000,
}
"""SwissArmyTransformer 0.4.12 training/deepspeed_zero1.json and deepspeed_zero2.json."""


def with_flag_settings(run: LintContext) -> LintContext:
    """The run with the slots that a program's flags set; unchanged if there are none."""
    found = [*run.of(_COOKBOOK), *run.of(_OF_SAT)]
    if not found:
        return run
    more = tuple(each for one in found for each in _read(run, one))
    return replace(run, documents=(*run.documents, *more)) if more else run


def recomputes_unasked(run: LintContext) -> bool:
    """Whether llama-cookbook may recompute by default: an unknown release over an 8-bit base.

    llama-recipes 0.0.1 finetuning.py `main`: prepare_model_for_int8_training; not in llama-cookbook
    0.0.5.post1.
    """
    is_packed = any(place.value for place in run.each(_COOKBOOK, "quantization"))
    return is_packed and not run.release(_COOKBOOK).is_named


def _read(run: LintContext, document: Document) -> Iterator[Document]:
    if document.kind == _COOKBOOK and _COOKBOOK in run.targets:
        yield from _by_table(document, run.targets[_COOKBOOK])
    if document.kind == _OF_SAT and _is_visualglm(run, document) and _VISUALGLM in run.targets:
        yield from _by_table(document, run.targets[_VISUALGLM])
        yield from _engine_of(run, document)


def _is_visualglm(run: LintContext, document: Document) -> bool:
    starts = (each.value("script") for each in run.of("launch"))
    words = [str(start[0]) for start in starts if isinstance(start, list) and start]
    named = any(map(_NAMED.search, (*words, run.model_name or "")))
    return named and any(document.get(key) for key in _ADAPTERS)


def _by_table(document: Document, target: Target) -> Iterator[Document]:
    file = next((each for each in target.files if each.format == "shell"), None)
    names = {} if file is None else _flags(file)
    places = ((key, document.get(name)) for key, name in names.items())
    found = {key: place for key, place in places if place is not None}
    unknown = frozenset(key for key, name in names.items() if name in document.unknown)
    if found:
        yield replace(view(document, _KIND, found), target=target, file=file, unknown=unknown)


def _flags(file: File) -> Mapping[str, str]:
    """The flags of a table as they are read, with underscores, by the table's own keys."""
    keys = (key for row in file.entries for key in row.keys if key.startswith(f"{_BLOCK}."))
    return {key: key.removeprefix(f"{_BLOCK}.").replace("-", "_") for key in keys}


def _engine_of(run: LintContext, document: Document) -> Iterator[Document]:
    """DeepSpeed's file as SwissArmyTransformer makes it, with DeepSpeed's own table."""
    reader = run.targets.get("deepspeed")
    files = reader.files if reader is not None else ()
    file = next((each for each in files if each.name.endswith("ds_config.json")), None)
    for mine in (each for each in run.of("deepspeed") if each.origin is document):
        held = {key: at for key, at in mine.found.items() if not at.node.fields}
        stage = held.get("zero_optimization.stage")
        if stage is not None:
            held |= {f"zero_optimization.{key}": read_as(stage, value=_ZERO[key]) for key in _ZERO}
        yield replace(view(document, "deepspeed", held), target=reader, file=file)


_OF_SIMPLETUNER: Final = (
    *("ramtorch", "musubi_blocks_to_swap", "enable_group_offload", "optimizer_cpu_offload_method"),
    *("controlnet", "fsdp_enable", "context_parallel_size", "tread_config", "unet_attention_slice"),
)
"""Keys of SimpleTuner that move, split or leave out what no slot speaks of (4.10.1)."""
_OF_SD_SCRIPTS: Final = (
    *("blocks_to_swap", "fp8_base", "fp8_base_unet", "cpu_offload_checkpointing", "full_fp16"),
    *("unsloth_offload_checkpointing", "fused_backward_pass", "blockwise_fused_optimizers"),
    *("fused_optimizer_groups", "deepspeed", "network_train_text_encoder_only", "split_mode"),
    *("num_last_block_to_freeze", "controlnet_model_name_or_path", "double_blocks_to_swap"),
    *("single_blocks_to_swap", "token_string"),
)
"""Flags of sd-scripts that do so (kohya-ss/sd-scripts 0.10.1)."""
_OF_MUSUBI: Final = (
    *("blocks_to_swap", "fp8_base", "fp8_scaled", "gradient_checkpointing_cpu_offload"),
    *("img_in_txt_in_offloading", "fused_backward_pass", "full_bf16", "full_fp16", "split_attn"),
    *("dit_high_noise", "trainable_modules", "self_flow"),
)
"""Flags of musubi-tuner that do so (kohya-ss/musubi-tuner 0.3.4)."""
_OF_AI_TOOLKIT: Final = (
    *("model.quantize", "model.layer_offloading", "model.auto_memory", "model.low_vram"),
    *("model.split_model_over_gpus", "adapter", "embedding", "decorator", "slider"),
    *("train.do_paramiter_swapping", "network.layer_offloading", "model.only_if_contains"),
)
"""Keys of ai-toolkit that do so (ostris/ai-toolkit 0.12.26)."""
ELSEWHERE: Final = {
    "simpletuner": _OF_SIMPLETUNER,
    "sd-scripts": _OF_SD_SCRIPTS,
    "musubi-tuner": _OF_MUSUBI,
    "ai-toolkit": _OF_AI_TOOLKIT,
}
"""By kind, the keys by which a denoiser is stored, stepped or split as no slot says."""
