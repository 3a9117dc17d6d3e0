"""Keys that LLaMA-Factory refuses together, or alone."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import (
    Need,
    Pair,
    check_need,
    check_pair,
    first_keys,
    refused_beside,
    where,
)
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.known_keys import keys_ever
from tunec.compiler.lints.kinds import is_fragment
from tunec.compiler.lints.rows import Row, found, reads_of
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace
from tunec.targets.llamafactory.templates import ENDS_ONCE

_POLICY: Final = "its adapter is added to the policy"
_ONE: Final = "each is a separate optimizer"
_PAIRS: Final = (
    Pair("max_samples", "streaming", "the samples of a stream are not counted"),
    Pair("mask_history", "train_on_prompt", "the first trains on the last turn, the other on all"),
    Pair(
        "train_on_prompt",
        f"template={'|'.join(sorted(ENDS_ONCE))}",
        "the template ends the last turn alone, and takes the loss over answers",
    ),
    Pair("use_llama_pro", "finetuning_type=full", "it only trains added blocks"),
    Pair("use_galore", "use_apollo", _ONE),
    Pair("use_galore", "use_badam", _ONE),
    Pair("use_apollo", "use_badam", _ONE),
    Pair("shift_attn", "stage=ppo"),
    Pair("infer_backend!=huggingface", "do_train=true", "it only runs inference"),
    Pair("reward_model_type=lora & stage=ppo", "finetuning_type=full", _POLICY),
    Pair("reward_model_type=lora & stage=ppo", "finetuning_type=freeze", _POLICY),
    Pair("do_train=false", "stage=ppo", "PPO has no other use than training"),
    Pair("compute_accuracy", "predict_with_generate", "one needs logits, the other generated text"),
    Pair(
        "use_unsloth & stage=ppo", "reward_model_type=lora", "its kernels support a single adapter"
    ),
    Pair("use_kt & stage=ppo", "reward_model_type=lora", "its kernels support a single adapter"),
    Pair("reward_model_type=oft & stage=ppo", "finetuning_type=lora", _POLICY),
    Pair(
        "quantization_device_map=auto & no quantization_bit",
        "do_train=true",
        "that map is for inference only",
    ),
    *(
        Pair(other, "infer_backend=vllm & no do_train=true", why)
        for other, why in (
            ("stage!=sft", "vLLM generates text"),
            ("quantization_bit", "vLLM needs weights quantised by GPTQ or AWQ"),
            ("rope_scaling", "vLLM reads positions from the model's config"),
            ("adapter_name_or_path~,", "vLLM takes a single adapter"),
        )
    ),
    Pair("project=", "report_to~trackio", "its runs need a project", "llamafactory>=0.9.5"),
    Pair("use_galore", "deepspeed", "DeepSpeed holds the gradients"),
    Pair("use_apollo", "deepspeed", "DeepSpeed holds the gradients"),
    Pair(
        "gradient_accumulation_steps>1",
        "galore_layerwise & use_galore",
        "it steps during the backward pass",
    ),
    Pair(
        "gradient_accumulation_steps>1",
        "apollo_layerwise & use_apollo",
        "it steps during the backward pass",
    ),
)
_WHOLE_WEIGHTS: Final = "its kernels need unsharded weights"
_ROWS: Final = (
    *(
        Row(
            f"llamafactory:{key}",
            "{0.key} is refused under ZeRO stage 3",
            "refused",
            why,
            "remove {0.key}, or use stage 2",
            effective=("deepspeed:zero_optimization.stage=3",),
            files_only=True,
        )
        for key, why in (
            ("predict_with_generate", "a sharded model cannot generate"),
            ("pissa_init", "the weights are in shards when they are decomposed"),
            *(("use_unsloth", _WHOLE_WEIGHTS), ("use_kt", _WHOLE_WEIGHTS)),
        )
    ),
    *(
        Row(
            f"llamafactory:{name}_layerwise",
            "{0.key} is refused with {2.value} processes",
            "refused",
            "each parameter is stepped before its gradient is reduced",
            "remove {0.key}, or train with one process",
            beside=(f"use_{name}",),
            effective=("(slot:parallel.world>1)",),
            files_only=True,
        )
        for name in ("galore", "apollo")
    ),
    *(
        Row(
            f"llamafactory:{key}{bound}",
            f"{{0.key}} {{0.value}} cannot be combined with {other} {usual}, the default",
            "refused",
            "the most pixels cannot be fewer than the least",
            f"also write {other}",
            beside=(f"no {other}",),
            files_only=True,
        )
        for key, bound, other, usual in (
            ("image_max_pixels", "<1024", "image_min_pixels", 1024),
            ("image_min_pixels", ">589824", "image_max_pixels", 589824),
            ("video_max_pixels", "<256", "video_min_pixels", 256),
            ("video_min_pixels", ">65536", "video_max_pixels", 65536),
        )
    ),
    Row(
        "llamafactory:tokenized_path",
        "tokenized_path cannot stand beside streaming",
        "refused unless it exists",
        "Turn off `streaming` when saving dataset to disk",
        "remove one of the two",
        beside=("streaming",),
        consequence="load",
        files_only=True,
    ),
    Row(
        "llamafactory:finetuning_type=full|freeze",
        "finetuning_type {0.value} cannot be combined with stage dpo and deepspeed",
        "fails",
        "the reference is prepared by another function than it is written for, which takes a batch",
        "take LLaMA-Factory 0.9.5, or lora",
        beside=("stage=dpo", "no pref_loss=orpo|simpo", "deepspeed"),
        since="llamafactory>=0.9.4,<0.9.5",
        consequence="init",
        files_only=True,
    ),
    Row(
        "llamafactory:use_dora",
        "use_dora cannot be combined with quantization_bit",
        "refused",
        "DoRA is not compatible with PTQ-quantized models, for which it takes every one",
        "remove one of the two",
        beside=("quantization_bit", "do_train=true", "no adapter_name_or_path"),
        since="llamafactory>=0.9.3",
        consequence="load",
        files_only=True,
    ),
    *(
        Row(
            f"llamafactory:{key}>1",
            "{0.key} {0.value} cannot be combined with neat_packing and flash_attn fa2",
            "refused",
            "bsz should be 1 for neat packing",
            f"write {key}: 1",
            beside=("neat_packing", "flash_attn=fa2", *beside),
            since="llamafactory>=0.9.5",
            files_only=True,
            consequence="step",
        )
        for key, *beside in (
            ("per_device_train_batch_size",),
            ("per_device_eval_batch_size", "eval_dataset|val_size"),
        )
    ),
)
_UNMASKED: Final = ("gpt-oss", "gpt_oss", "gemma-4", "gemma4")
"""data/collator.py `SFTDataCollatorWith4DAttentionMask`: Neat packing is not supported for gemma4,
gpt_oss models."""
_LOGGERS: Final = ("wandb", "tensorboard", "trackio", "none")


@rule(
    "error",
    "parse",
    consumers=("llamafactory",),
    reads=(
        *first_keys("llamafactory", _PAIRS),
        *reads_of(_ROWS),
        *keys("llamafactory", "stage", "use_llama_pro", "neat_packing"),
    ),
)
def refused_together(run: LintContext) -> Iterator[Finding]:
    """Two keys that LLaMA-Factory refuses together."""
    yield from found(_ROWS, run)
    for document in run.of("llamafactory"):
        if document.is_view:
            continue
        for pair in _PAIRS:
            yield from check_pair(run, document, pair)
        yield from _in_dpo(run, document)
        yield from _in_ppo(run, document)
        yield from _expanded(run, document)
        yield from _packed_early(run, document)
        yield from _packed(document)


def _in_dpo(run: LintContext, document: Document) -> Iterator[Finding]:
    """PiSSA changes the base, which is the reference of DPO."""
    at, stage = where(document, "pissa_init"), where(document, "stage=dpo")
    if (
        at is not None
        and stage is not None
        and document.value("pref_loss") not in ("orpo", "simpo")
    ):
        yield refused_beside(run, at, stage, ("the reference would be the changed base", ""))


def _in_ppo(run: LintContext, document: Document) -> Iterator[Finding]:
    at, stage = document.get("report_to"), where(document, "stage=ppo")
    named = at.value if at is not None else None
    words = named if isinstance(named, list) else [named]
    if at is not None and stage is not None and named and not set(map(str, words)) <= {*_LOGGERS}:
        yield refused_beside(run, at, stage, ("PPO reports to wandb, tensorboard or trackio", ""))
    method, reward = document.get("finetuning_type"), document.get("reward_model_type")
    is_whole = method is not None and method.value in ("full", "freeze")
    if stage is not None and method is not None and is_whole and reward is None:
        is_given = document.get("reward_model") is not None
        if is_given and "reward_model_type" not in document.unknown:
            yield Finding(
                f"the reward model is an adapter by default, and finetuning_type is {method.value}",
                (method.label("refused"), stage.label("", primary=False)),
                ("`reward_model_type` is lora by default",),
                "write reward_model_type: full",
                severity="warning",
            )


def _expanded(run: LintContext, document: Document) -> Iterator[Finding]:
    """LLaMA Pro adds blocks between equal groups of layers, so their number must be divisible."""
    pro, count = where(document, "use_llama_pro"), document.get("freeze_trainable_layers")
    number = abs(count.value) if count is not None and isinstance(count.value, int) else 2
    layers = max((s.layers for s in run.model.architecture.stacks), default=0) if run.model else 0
    if pro is not None and number and layers and layers % number:
        yield Finding(
            f"{layers} layers cannot be divided by freeze_trainable_layers {number}",
            ((count or pro).label("refused"), *([pro.label("", primary=False)] if count else [])),
            ("num_layers should be divisible by num_layer_trainable",),
            f"write {next(each for each in range(number, 0, -1) if layers % each == 0)}",
            consequence="init",
        )


_PACKED: Final = frozenset(
    {"cohere", "falcon", "gemma", "gemma2", "llama", "mistral", "phi", "phi3", "qwen2"}
    | {"starcoder2"}
)
"""llamafactory 0.9.1 extras/constants.py `SUPPORTED_CLASS_FOR_BLOCK_DIAG_ATTN`."""


def _packed_early(run: LintContext, document: Document) -> Iterator[Finding]:
    """Before 0.9.2 neat packing supports only some models, and none with images."""
    packed, named = where(document, "neat_packing"), document.get("model_name_or_path")
    if packed is None or named is None or not run.runs("llamafactory<0.9.2"):
        return
    card = run.model.card if run.model is not None else None
    kind = card.config.get("model_type") if card is not None else None
    sees = "-vl-" in str(named.value).lower() or "llava" in str(named.value).lower()
    if sees or (isinstance(kind, str) and kind not in _PACKED):
        told = "Current model does not support block diagonal attention"
        remedy = "remove neat_packing, or use LLaMA-Factory 0.9.2 and later"
        yield _unpacked(packed, named, told, remedy)


def _packed(document: Document) -> Iterator[Finding]:
    """Neat packing needs a block mask, which two families do not support in FlashAttention."""
    packed, kernel = where(document, "neat_packing"), where(document, "flash_attn=fa2")
    name = document.get("model_name_or_path")
    said = str(name.value).lower() if name is not None else ""
    if packed is None or kernel is None or name is None:
        return
    if any(each in said for each in _UNMASKED):
        told = "Neat packing is not supported for gemma4, gpt_oss models"
        yield _unpacked(packed, name, told, "remove neat_packing")


def _unpacked(packed: Place, model: Place, told: str, remedy: str) -> Finding:
    return Finding(
        f"neat_packing is refused for {model.value}",
        (packed.label("refused"), model.label("", primary=False)),
        (told,),
        remedy,
        consequence="load",
    )


_EVALUATED: Final = ("val_size", "eval_dataset")
_NO_DATA: Final = "there is nothing to evaluate on"
_WHOLE: Final = "the projector is trained whole, and an adapter trains nothing whole"
_OF_DATA: Final = (
    Need("do_train", ("dataset",), "there is nothing to train on"),
    Need("val_size", ("dataset",), "it is a share of that data"),
)
"""Checked in whole files only: a part of a file may leave the data to another part."""
_NEEDS: Final = (
    Need("interleave_probs", ("mix_strategy~interleave",), "concatenated data is not sampled"),
    Need("streaming", ("max_steps",), "the length of a stream is not known"),
    Need("do_eval", _EVALUATED, _NO_DATA),
    Need("predict_with_generate", _EVALUATED, _NO_DATA),
    Need("do_predict", _EVALUATED, _NO_DATA),
    Need("eval_strategy!=no", _EVALUATED, _NO_DATA),
    Need("evaluation_strategy!=no", _EVALUATED, _NO_DATA),
    Need("do_predict & stage=sft", ("predict_with_generate",), "predictions are generated texts"),
    Need("train_mm_proj_only", ("finetuning_type=full",), _WHOLE, "llamafactory<0.9.2"),
    Need("export_quantization_bit", ("export_quantization_dataset",), "it is calibrated on data"),
)


@rule(
    "error",
    "parse",
    consumers=("llamafactory",),
    reads=first_keys("llamafactory", (*_OF_DATA, *_NEEDS)),
)
def refused_without(run: LintContext) -> Iterator[Finding]:
    """A key that LLaMA-Factory refuses without another one."""
    for document in run.of("llamafactory"):
        if document.is_view:
            continue
        told: set[str] = set()
        is_part = is_fragment(document)
        is_doubtful = _is_open(run, document)
        for need in _NEEDS if is_part else (*_OF_DATA, *_NEEDS):
            is_left_out = is_part and need.why == _NO_DATA and document.get("dataset") is None
            for finding in check_need(run, document, need):
                if need.why in told:
                    continue
                if is_doubtful and need.why == _NO_DATA:
                    yield replace(finding, severity="note")
                else:
                    yield replace(finding, severity="warning") if is_left_out else finding
                told.add(need.why)
        yield from _shares(document)


def _is_open(run: LintContext, document: Document) -> bool:
    """Whether the user is to name the data, or the repository's own code splits it."""
    places = (document.get(key) for key in ("dataset", "eval_dataset"))
    if any(each is not None and each.value is None for each in places):
        return True
    if run.own.holds("class FinetuningArguments") and run.own.lacks("be provided or val_size"):
        return True  # a LLaMA-Factory of the repository's own, from before the check
    known = keys_ever("llamafactory")
    return any(run.own.declares(key) for key in document.found if key not in known)


def _shares(document: Document) -> Iterator[Finding]:
    """`interleave_probs` has as many shares as there are data sets."""
    shares = where(document, "interleave_probs")
    count = _count(shares)
    for key in ("dataset", "eval_dataset"):
        named = where(document, key)
        if shares is None or named is None or _count(named) in (0, count) or not count:
            continue
        yield Finding(
            f"{count} interleave_probs for {_count(named)} of {key}",
            (shares.label("one for each"), named.label("", primary=False)),
            (),
            f"write {_count(named)} numbers",
        )


def _count(at: Place | None) -> int:
    value = at.value if at is not None else None
    if isinstance(value, list):
        return len(value)
    return len([part for part in value.split(",") if part.strip()]) if isinstance(value, str) else 0
