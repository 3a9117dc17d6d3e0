"""A flag that llama-cookbook's finetuning does not know, or does not read beside others."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.conditions import told, where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KIND: Final = "llama-cookbook"
_FILE: Final = "llama-cookbook/0.0.5.post1.json"
_OWN: Final = frozenset(
    {
        *("adapter_len", "adapter_layers", "num_virtual_tokens", "project", "entity", "job_type"),
        *("tags", "group", "notes", "mode", "quantization_config.quant_type", "prompt_template"),
        *("save_every_epoch", "dist_checkpoint_root_folder"),
    }
)
"""Fields of the other classes that are given the flags: configs/peft.py, wandb.py, datasets.py."""
_BESIDE: Final = (
    ("freeze_layers", "use_peft", "layers are frozen only where all of the model is trained"),
    ("num_freeze_layers", "use_peft", "layers are frozen only where all of the model is trained"),
    ("freeze_LLM_only", "use_peft", "it is frozen only where all of the model is trained"),
    (
        *("context_length", "batching_strategy=padding"),
        "only packing cuts samples into that length: a padded batch is as long as its longest",
    ),
    (
        *("use_fp16", "fsdp_config.pure_bf16"),
        "the model is bf16, and autocast to fp16 runs over it with a loss scale",
    ),
)
_WITHOUT: Final = (
    ("freeze_layers", "enable_fsdp", "layers are frozen where FSDP is set up"),
    ("fsdp_config.pure_bf16", "enable_fsdp", "FSDP is off"),
    ("fsdp_config.fsdp_cpu_offload", "enable_fsdp", "FSDP is off"),
    (
        *("fsdp_config.fsdp_activation_checkpointing", "enable_fsdp"),
        "activations are recomputed where FSDP is set up, and kept on one device",
    ),
    ("mixed_precision=false", "enable_fsdp", "it is read where FSDP is set up: weights are bf16"),
    (
        *("fsdp_config.optimizer=anyprecision", "fsdp_config.pure_bf16"),
        "torch's AdamW is taken, whose states are of the weights' dtype",
    ),
    ("num_freeze_layers", "freeze_layers", "no layer is frozen"),
    ("from_peft_checkpoint", "use_peft", "no adapter is loaded"),
    ("gradient_clipping_threshold", "gradient_clipping", "gradients are not clipped"),
    (
        *("fsdp_config.hsdp", "fsdp_config.sharding_strategy"),
        "it is read with HYBRID_SHARD alone, and FULL_SHARD is the default",
    ),
    ("peft_method", "use_peft", "the whole model is trained"),
    ("lora_config.r", "use_peft", "the whole model is trained"),
    ("lora_config.lora_alpha", "use_peft", "the whole model is trained"),
    ("lora_config.target_modules", "use_peft", "the whole model is trained"),
    (
        "quantization",
        "use_peft",
        "quantised weights take no gradient, and only the rest is trained",
    ),
)


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of(_KIND):
        for path, place in document.found.items():
            if not place.node.fields and not _is_known(path):
                yield _unknown(place)
        yield from _unread(document)


def _unread(document: Document) -> Iterator[Finding]:
    at = where(document, "quantization=true")
    if at is not None and where(document, "enable_fsdp") is None:
        yield Finding(
            "quantization without a word is 8bit",
            (at.label("LLM.int8()"),),
            ("a FutureWarning says that this may change",),
            "write --quantization 8bit, or 4bit",
        )
    for flag, other, why in _BESIDE:
        at, beside = _said(document, flag), _said(document, other)
        if at is not None and beside is not None:
            yield Finding(
                f"{flag} does not do what it says beside {told(other)}",
                (at.label("not as written"), beside.label("", primary=False)),
                (why,),
                "remove one of the two",
            )
    for flag, other, why in _WITHOUT:
        at = _said(document, flag)
        if at is not None and _said(document, other) is None and other not in document.unknown:
            yield Finding(
                f"{told(flag)} does nothing without {other}",
                (at.label("not as written"),),
                (why,),
                f"write --{other}, or remove it",
            )


def _said(document: Document, condition: str) -> Place | None:
    """Where a flag is written with its class's name or without: both reach the class."""
    return where(document, condition) or where(document, condition.rpartition(".")[2])


@cache
def _flags() -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema(_FILE)["properties"]
    return found


@cache
def _names() -> frozenset[str]:
    """Every flag, with and without the name of its class."""
    inner = {
        name: frozenset(each["properties"])
        for name, each in _flags().items()
        if "properties" in each
    }
    dotted = {f"{part}.{name}" for part, names in inner.items() for name in names}
    return frozenset(_flags()).union(dotted, *inner.values(), _OWN)


def _is_known(path: str) -> bool:
    part = path.partition(".")
    return path in _names() or (bool(part[1]) and part[0].endswith(("_dataset", "wandb_config")))


def _unknown(place: Place) -> Finding:
    near = nearest(place.path, _names())[:1]
    return Finding(
        f"finetuning knows no parameter `{place.path}`",
        (place.key_label("passed over"),),
        ("it says `Warning: unknown parameter` among its first lines and goes on",),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((place.renamed(near[0]),), "unsafe") if near else None,
    )


RULE = Rule(
    name="flag-not-read-by-llama-cookbook",
    severity="warning",
    consequence="silent",
    consumers=("llama-cookbook",),
    sources=(
        (
            "meta-llama/llama-cookbook 0e00335 utils/config_utils.py `update_config`: Warning: "
            "unknown parameter; finetuning.py `main`; utils/train_utils.py `train`, `get_policies`"
        ),
    ),
    check=_check,
)
