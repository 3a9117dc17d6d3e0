"""FSDP and loops of programs' own, as the memory account knows them."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.sharding import Asked, asked, is_false, is_true, words
from tunec.compiler.lints.views import read_as, view
from tunec.compiler.target import File, Target
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.ir.slots import Fsdp
    from tunec.schemas.terms import FsdpSharding


_STRATEGIES: Final[Mapping[str, "FsdpSharding"]] = {
    "1": "full",
    "FULL_SHARD": "full",
    "2": "grad_op",
    "SHARD_GRAD_OP": "grad_op",
    "3": "none",
    "NO_SHARD": "none",
    "4": "hybrid",
    "HYBRID_SHARD": "hybrid",
}
"""torch 2.13 `distributed/fsdp/api.py`, `ShardingStrategy`, by name and by the number that
accelerate 1.15 `utils/constants.py` gives each (`FSDP_SHARDING_STRATEGY`)."""

_SLOTS: Final = ("version", "sharding", "wrap", "offload_params", "efficient_loading")
"""What a program's own table says of its FSDP."""


def is_fully_sharded(run: LintContext) -> bool:
    """Whether any file turns FSDP on, or a program does that has its own."""
    return any(True for _ in asked(run)) or run.value("parallel.engine") == "fsdp"


def fsdp_of(run: LintContext) -> "Fsdp | None":
    """The settings of the file that is read last; None for a sharding that no slot can ask for.

    Where no key is written, both accelerate and transformers do the same: all is sharded, and each
    layer is a unit of its own, without which FSDP takes more.
    """
    from tunec.compiler.analyses.memory.workload import USUAL_FSDP

    files = list(asked(run))
    if not files:
        said = {name: run.value(f"fsdp.{name}") for name in _SLOTS}
        return replace(USUAL_FSDP, **{k: each for k, each in said.items() if each is not None})
    each = files[-1]
    sharding = _sharding(each)
    if sharding is None:
        return None

    policy = each.get("auto_wrap_policy")
    whole = policy is not None and str(policy.value).upper() == "NO_WRAP"
    return replace(
        USUAL_FSDP,
        version=each.version or USUAL_FSDP.version,
        sharding=sharding,
        offload_params=_offloads(each),
        wrap="none" if whole else "transformer",
        efficient_loading=not is_false(each.get("cpu_ram_efficient_loading")),
        checkpointing=is_true(each.get("activation_checkpointing")),
    )


def _sharding(each: Asked) -> "FsdpSharding | None":
    if each.version != 1:
        return "grad_op" if is_false(each.get("reshard_after_forward")) else "full"
    said = each.get("sharding_strategy", "reshard_after_forward")
    if said is not None:
        return _STRATEGIES.get(str(said.value).upper())
    options = [word.upper() for word in words(each.on) if "SHARD" in word.upper()]
    return _STRATEGIES.get(options[0]) if options else "full"


def _offloads(each: Asked) -> bool:
    return is_true(each.get("offload_params")) or "offload" in words(each.on)


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
    """The run with what the flags of such a program say of slots; itself where there are none."""
    found = [*run.of(_COOKBOOK), *run.of(_OF_SAT)]
    if not found:
        return run
    more = tuple(each for one in found for each in _read(run, one))
    return replace(run, documents=(*run.documents, *more)) if more else run


def recomputes_unasked(run: LintContext) -> bool:
    """Whether llama-cookbook may: a release that is not given, over a base of 8 bits.

    llama-recipes 0.0.1 finetuning.py `main`: prepare_model_for_int8_training; not in
    llama-cookbook 0.0.5.post1.
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
