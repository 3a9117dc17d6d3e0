"""Documents seen through another dialect: DeepSpeed's keys in an accelerate file, and the like.

A view holds the same places under the keys of the consumer that will get them, so that a rule
about DeepSpeed finds a ZeRO stage wherever it is written.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.kinds import LOADING
from tunec.schemas.dotted_paths import nested
from tunec.schemas.frozen import replace

_ACCELERATE: Final[Mapping[str, str]] = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "gradient_clipping",
    "zero_stage": "zero_optimization.stage",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_optimizer_nvme_path": "zero_optimization.offload_optimizer.nvme_path",
    "offload_param_device": "zero_optimization.offload_param.device",
    "offload_param_nvme_path": "zero_optimization.offload_param.nvme_path",
    "zero3_save_16bit_model": "zero_optimization.stage3_gather_16bit_weights_on_model_save",
}
"""accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: the config that
it builds from these keys of `deepspeed_config`, or from the launcher's flags of the same names."""
_PRECISION: Final = {"fp16": "fp16.enabled", "bf16": "bf16.enabled"}
"""accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.set_mixed_precision`."""

_AXOLOTL: Final[Mapping[str, str]] = {
    "base_model": "model_name_or_path",
    "micro_batch_size": "per_device_train_batch_size",
    "eval_batch_size": "per_device_eval_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "num_epochs": "num_train_epochs",
    "optimizer": "optim",
    "lr_scheduler": "lr_scheduler_type",
    **{
        key: key
        for key in (
            *("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
            *("max_grad_norm", "warmup_steps", "warmup_ratio", "max_steps", "tf32"),
            *("gradient_checkpointing", "gradient_checkpointing_kwargs", "save_steps"),
            *(
                "eval_steps",
                "save_strategy",
                "eval_strategy",
                "save_total_limit",
                "group_by_length",
            ),
            *("load_best_model_at_end", "save_only_model", "deepspeed", "fsdp", "fsdp_config"),
            *("output_dir", "seed", "torch_compile", "metric_for_best_model", "save_safetensors"),
        )
    },
}
"""Axolotl 0.4 to 0.13 core/builders/base.py, causal.py: what TrainingArguments are given. Of
`evaluation_strategy` they get `eval_strategy` (0.19.0 utils/schemas/validation.py)."""


_ALPACA: Final[Mapping[str, str]] = {
    "base_model": "model_name_or_path",
    "micro_batch_size": "per_device_train_batch_size",
    "num_epochs": "num_train_epochs",
    "cutoff_len": "model_max_length",
    **{key: key for key in ("learning_rate", "output_dir", "group_by_length")},
}
"""tloen/alpaca-lora 8bb8579 finetune.py: what TrainingArguments and the tokenizer are given."""


def views(document: Document) -> Iterator[Document]:
    """What one document says in other dialects too."""
    if document.kind in _VIEWS:
        yield from _VIEWS[document.kind](document)
    if document.kind in ("model", "hf") and document.get("quantization_config.load_in_4bit"):
        yield _block(document, "model", "quantization_config")
    if document.format == "shell" and document.kind in ("hf", "sft"):
        yield from _loaded_by_script(document)
    key = "deepspeed_config" if document.kind == "simpletuner" else "deepspeed"
    inline = document.get(key)
    if inline is not None and inline.node.fields:
        yield _block(document, "deepspeed", key)


def _block(document: Document, kind: str, key: str) -> Document:
    """A block of a document as a file of its own, with what of it is not known."""
    prefix = f"{key}."
    hidden = {each.removeprefix(prefix) for each in document.unknown if each.startswith(prefix)}
    beside = document.unknown - LOADING if kind == "model" else frozenset()
    return replace(view(document, kind, _below(document, prefix)), unknown=beside | hidden)


def _axolotl(document: Document) -> Iterator[Document]:
    found = {new: each for old, new in _AXOLOTL.items() if (each := document.get(old))}
    older = document.get("evaluation_strategy")
    if older is not None:
        found.setdefault("eval_strategy", older)
    yield view(document, "hf", found | _axolotl_precision(document))


def _glm(document: Document) -> Iterator[Document]:
    found = _below(document, "training_args.")
    if found:
        yield view(document, "hf", found)


def _accelerate(document: Document) -> Iterator[Document]:
    """DeepSpeed's config out of the inline keys; with a file of its own there is none."""
    inline = document.get("deepspeed_config")
    if inline is None or not inline.node.fields:
        return
    if document.value("deepspeed_config.deepspeed_config_file"):
        return
    found = {
        new: each
        for old, new in _ACCELERATE.items()
        if (each := document.get(f"deepspeed_config.{old}")) and not _is_none(each.value)
    }
    mixed = document.get("mixed_precision")
    if mixed is not None and isinstance(mixed.value, str) and mixed.value in _PRECISION:
        found[_PRECISION[mixed.value]] = read_as(mixed, value=True)
    yield view(document, "deepspeed", found)


def _launched(document: Document) -> Iterator[Document]:
    """DeepSpeed's config out of the flags of `accelerate launch --use_deepspeed`."""
    is_accelerates = document.value("launcher") == "accelerate"
    if not is_accelerates or document.value("flags.use_deepspeed") is not True:
        return
    if document.get("flags.deepspeed_config_file"):
        return
    found = {
        new: each
        for old, new in _ACCELERATE.items()
        if (each := document.get(f"flags.{old}")) and not _is_none(each.value)
    }
    mixed = document.get("flags.mixed_precision")
    if found and mixed is not None and mixed.value in _PRECISION:
        found[_PRECISION[mixed.value]] = read_as(mixed, value=True)
    if found:
        yield view(document, "deepspeed", found)


def _alpaca(document: Document) -> Iterator[Document]:
    """What the script gives to the trainer, and how it loads the base: in 8 bits, under LoRA.

    tloen/alpaca-lora 8bb8579 finetune.py: load_in_8bit, fp16; peft 0.3.0 utils/other.py
    `prepare_model_for_int8_training`: use_gradient_checkpointing=True.
    """
    base = document.get("base_model")
    found = {new: each for old, new in _ALPACA.items() if (each := document.get(old))}
    if base is None:
        return
    switches = {key: read_as(base, value=True) for key in ("fp16", "gradient_checkpointing")}
    yield view(document, "hf", {**found, **switches})
    adapter = {key: each for key in ("lora_r", "lora_alpha") if (each := document.get(key))}
    constants = {key: read_as(base, value=True) for key in ("load_in_8bit", "use_peft")}
    yield view(document, "model", {"model_name_or_path": base, **constants, **adapter})


_COOKBOOK: Final = {"4bit": "load_in_4bit", "8bit": "load_in_8bit", True: "load_in_8bit"}


def _cookbook(document: Document) -> Iterator[Document]:
    """A base that is quantised: in 8 bits where no word says how.

    llama-cookbook 0.0.5.post1 finetuning.py `main`.
    """
    bits = document.get("quantization")
    key = _COOKBOOK.get(bits.value) if bits and isinstance(bits.value, str | bool) else None
    if bits is not None and key is not None:
        yield view(document, "model", {key: read_as(bits, value=True)})


_SAT: Final[Mapping[str, str]] = {
    "zero_stage": "zero_optimization.stage",
    "batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "fp16": "fp16.enabled",
    "bf16": "bf16.enabled",
}
_IN_FP16: Final = "fp16.enabled"


def _sat(document: Document) -> Iterator[Document]:
    """What SwissArmyTransformer writes into its own DeepSpeed file, where no other is named.

    SwissArmyTransformer 0.4.12 sat/arguments.py `get_args`: override_deepspeed_config;
    Automatically set fp16=True to use ZeRO.
    """
    named = document.get("deepspeed_config") or "deepspeed_config" in document.unknown
    if named or document.value("mode") == "inference":
        return
    found = {new: each for old, new in _SAT.items() if (each := document.get(old))}
    stage = document.get("zero_stage")
    halves = {"fp16", "bf16"} & {*document.keys, *document.unknown}
    if len(halves) > 1:
        return  # refused before a file is written
    if stage is not None and stage.value in (1, 2) and not halves:
        found[_IN_FP16] = read_as(stage, value=True)
    yield view(document, "deepspeed", found)


_VIEWS: Final[Mapping[str, Callable[[Document], Iterator[Document]]]] = {
    "accelerate": _accelerate,
    "axolotl": _axolotl,
    "launch": _launched,
    "alpaca-lora": _alpaca,
    "llama-cookbook": _cookbook,
    "sat": _sat,
    "glm4": _glm,
}
_BITS: Final = {4: "load_in_4bit", 8: "load_in_8bit"}


def _loaded_by_script(document: Document) -> Iterator[Document]:
    """The base that flags of scripts ask to be quantised: `--bits 4`, or `--q_lora True`.

    haotian-liu/LLaVA c121f04 llava/train/train.py and 2U1/Qwen-VL-Series-Finetune 93fef86
    src/train/train_sft.py: BitsAndBytesConfig of 4 or 8 bits, computed in the run's dtype;
    QwenLM/Qwen 2df8e8a finetune.py: 4 bits of GPTQ; artidoro/qlora 7f4e95a qlora.py.
    """
    whole = _whole_by_script(document)
    if whole:
        yield view(document, "model", whole)
    bits, q_lora = document.get("bits"), document.get("q_lora")
    key = _BITS.get(bits.value) if bits is not None and type(bits.value) is int else None
    if key is None and q_lora is not None and str(q_lora.value).lower() == "true":
        bits, key = q_lora, _BITS[4]
    if bits is None or key is None:
        return
    found = {key: read_as(bits, value=True)}
    for half, word in (("bf16", "bfloat16"), ("fp16", "float16")):
        at = document.get(half)
        if at is not None and str(at.value).lower() == "true" and key == _BITS[4]:
            found["bnb_4bit_compute_dtype"] = read_as(at, value=word)
    yield view(document, "model", found)


def _whole_by_script(document: Document) -> dict[str, Place]:
    """LLaVA's script trains the whole model where neither LoRA nor a part of it is asked for.

    haotian-liu/LLaVA c121f04 llava/train/train.py `train`: `lora_enable` is false by itself.
    """
    base, lora = document.get("model_name_or_path"), document.get("lora_enable")
    is_one = document.get("mm_projector_type") or document.get("pretrain_mm_mlp_adapter")
    others = ("lora_enable", "tune_mm_mlp_adapter", "freeze_backbone", "mm_tunable_parts")
    if base is None or not is_one or "lora_enable" in document.unknown:
        return {}
    if any(str(document.value(key, False)).lower() not in ("false", "none") for key in others):
        return {}
    return {"use_peft": read_as(lora or base, value=False)}


def read_as(place: Place, value: Any) -> Place:
    """A place in a document, with the value that another reader takes it for."""
    return Place(place.document, place.path, replace(place.node, value=value))


def _axolotl_precision(document: Document) -> dict[str, Place]:
    """`bf16: auto` and `fp16: auto` are settled by the device; a clear word is passed on.

    bf16 turns fp16 off where that is not said (axolotl 0.8.1 to 0.19.0 utils/config/__init__.py
    `resolve_dtype`); what fp16 does to an absent bf16 differs between releases.
    """
    both = {key: document.get(key) for key in ("bf16", "fp16")}
    said = {key: each for key, each in both.items() if each and isinstance(each.value, bool)}
    if "fp16" in said or "fp16" in document.unknown or "bf16" not in said:
        return said
    return said | ({"fp16": read_as(said["bf16"], value=False)} if said["bf16"].value else {})


def _is_none(value: Any) -> bool:
    """`none` is written where something is not given."""
    return isinstance(value, str) and value.lower() == "none"


def _below(document: Document, prefix: str) -> dict[str, Place]:
    return {
        path.removeprefix(prefix): each
        for path, each in document.found.items()
        if path.startswith(prefix) and not each.node.fields
    }


def view(document: Document, kind: str, found: Mapping[str, Place]) -> Document:
    """A document of another kind from places of this one, by the keys of that kind."""
    tree = nested({key: each.node for key, each in found.items()})
    paths = {key: each.path for key, each in found.items()}
    root = _node(tree, document.root)
    return Document(
        document.name,
        kind,
        document.format,
        document.text,
        root,
        origin=document,
        paths={**_holders(paths), **paths},
    )


def _holders(paths: Mapping[str, str]) -> dict[str, str]:
    """Mappings of a view have no place of their own: they stand where their first key does."""
    found: dict[str, str] = {}
    for key, path in paths.items():
        parts = key.split(".")
        for depth in range(1, len(parts)):
            found.setdefault(".".join(parts[:depth]), path)
    return found


def _node(tree: Any, around: Node) -> Node:
    if isinstance(tree, Node):
        return tree
    fields = {key: _node(child, around) for key, child in tree.items()}
    first = next(iter(fields.values()), around)
    return Node(first.span, key_span=first.key_span, fields=fields)
