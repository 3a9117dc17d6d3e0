"""Flags of llama-cookbook's finetuning.py."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.conditions import Pair, check_pair, in_words, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.caches import cached

_KIND: Final = "llama-cookbook"
_FILE: Final = "llama-cookbook/0.0.5.post1.json"
_OWN: Final = frozenset(
    {
        *("adapter_len", "adapter_layers", "num_virtual_tokens", "project", "entity", "job_type"),
        *("tags", "group", "notes", "mode", "quantization_config.quant_type", "prompt_template"),
        *("save_every_epoch", "dist_checkpoint_root_folder"),
    }
)
"""Fields of the other classes that receive the flags: configs/peft.py, wandb.py, datasets.py."""
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


@rule("warning", "silent", consumers=("llama-cookbook",), reads=("llama-cookbook:*",))
def flag_not_read_by_llama_cookbook(run: LintContext) -> Iterator[Finding]:
    """A flag that llama-cookbook's finetuning does not have, or ignores beside others."""
    for document in run.of(_KIND):
        for path, place in document.found.items():
            if not place.node.fields and not _is_known(path):
                yield _unknown(place)
        yield from _unread(document)


def _unread(document: Document) -> Iterator[Finding]:
    at = where(document, "quantization=true")
    if at is not None and where(document, "enable_fsdp") is None:
        yield Finding(
            "quantization without a value is 8bit",
            (at.label("LLM.int8()"),),
            ("a FutureWarning says that this may change",),
            "write --quantization 8bit, or 4bit",
        )
    for flag, other, why in _BESIDE:
        at, beside = _written(document, flag), _written(document, other)
        if at is not None and beside is not None:
            yield Finding(
                f"{flag} does not do what its name says beside {in_words(other)}",
                (at.label("not as written"), beside.label("", primary=False)),
                (why,),
                "remove one of the two",
            )
    for flag, other, why in _WITHOUT:
        at = _written(document, flag)
        if at is not None and _written(document, other) is None and other not in document.unknown:
            yield Finding(
                f"{in_words(flag)} does nothing without {other}",
                (at.label("not as written"),),
                (why,),
                f"write --{other}, or remove it",
            )


def _written(document: Document, condition: str) -> Place | None:
    """The place of a flag, with or without the name of its class, as both are accepted."""
    return where(document, condition) or where(document, condition.rpartition(".")[2])


@cached()
def _flags() -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema(_FILE)["properties"]
    return found


@cached()
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
        ("it prints `Warning: unknown parameter` among its first lines and continues",),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((place.renamed(near[0]),), "unsafe") if near else None,
    )


KIND: Final = "llama-cookbook"
_EIGHT: Final = "8bit quantization is not supported with FSDP"
_PAIRS: Final = (
    Pair("quantization=8bit", "enable_fsdp", _EIGHT),
    Pair("quantization=true", "enable_fsdp", f"by default it is 8bit: {_EIGHT}"),
    Pair("peft_method=llama_adapter", "enable_fsdp", "not supported in combination with FSDP"),
)
_WORDS: Final = {
    "peft_method": (("lora", "llama_adapter"), "Peft config not found, or not supported"),
    "dataset": (
        (
            *("alpaca_dataset", "grammar_dataset", "samsum_dataset", "custom_dataset"),
            "llamaguard_toxicchat_dataset",
        ),
        "Unknown dataset",
    ),
    "batching_strategy": (("packing", "padding"), "Unknown batching strategy"),
    "quantization": (("4bit", "8bit"), "create_bnb_config knows these two"),
}
_CHECKPOINTS: Final = ("StateDictType.SHARDED_STATE_DICT", "StateDictType.FULL_STATE_DICT")
_WITHOUT_CCL: Final = "accelerate>=1.13"
_FAMILIES: Final = ("llama", "mllama")


@rule("error", "init", consumers=("llama-cookbook",), reads=("llama-cookbook:*",), hardware=True)
def flags_refused_by_llama_cookbook(run: LintContext) -> Iterator[Finding]:
    """Flags that llama-cookbook's finetuning refuses, or that cannot train."""
    for document in run.of(KIND):
        for pair in _PAIRS:
            yield from check_pair(run, document, pair)
        yield from _words(document)
        yield from _model(run, document)
        yield from _alone(run, document)
        yield from _saved(document)
        yield from _spread(run, document)
        yield from _imported(run, document)


def _words(document: Document) -> Iterator[Finding]:
    for key, (words, why) in _WORDS.items():
        at = document.get(key)
        if at is not None and isinstance(at.value, str) and at.value not in words:
            yield Finding(
                f"{key} {at.value} is refused",
                (at.label("refused"),),
                (why,),
                f"write {' or '.join(words)}",
            )


def _model(run: LintContext, document: Document) -> Iterator[Finding]:
    at = document.get("model_name")
    named = at.value if at is not None and isinstance(at.value, str) else None
    model = run.environment.model or (run.resolve_model(named) if named else None)
    if at is None or model is None:
        return
    if model.architecture.family not in _FAMILIES:
        yield Finding(
            f"{named} is a {model.architecture.family} model",
            (at.label("refused"),),
            ("Please use llama or mllama model",),
            "train a Llama model, or use another program",
        )
    batching = document.get("batching_strategy")
    is_packed = batching is None or batching.value == "packing"
    if model.architecture.kind == "vision-language" and is_packed:
        yield Finding(
            "samples with images are to be packed",
            ((batching or at).label("packing is the default" if batching is None else "refused"),),
            ("Packing is not supported for vision datasets",),
            "write --batching_strategy padding",
        )


def _alone(run: LintContext, document: Document) -> Iterator[Finding]:
    """FSDP needs torchrun's variables; without FSDP several processes are separate runs."""
    at = document.get("enable_fsdp")
    for launcher in launches(run, "python", "torchrun"):
        count = launcher.value("per_node")
        place = launcher.get("per_node") or launcher.get("launcher")
        if launcher.name != document.name or place is None:
            continue
        if launcher.value("launcher") == "python" and at is not None and at.value:
            yield Finding(
                "enable_fsdp needs a launcher, and none starts the process",
                (at.label("reads LOCAL_RANK, RANK and WORLD_SIZE"), place.label("", primary=False)),
                ("torchrun sets these variables: KeyError without it",),
                "start it by torchrun",
            )
        if isinstance(count, int) and count > 1 and not (at and at.value):
            yield Finding(
                f"{count} processes without enable_fsdp are {count} runs of one process",
                (place.label("all of them on the first device"),),
                ("only FSDP joins them, and without it the model goes to device 0",),
                "write --enable_fsdp, or start one process",
                consequence="silent",
            )


def _saved(document: Document) -> Iterator[Finding]:
    """FSDP's checkpoint type must be the full name of a member of torch's enumeration."""
    at = document.get("fsdp_config.checkpoint_type") or document.get("checkpoint_type")
    if at is None or not isinstance(at.value, str) or at.value in _CHECKPOINTS:
        return
    if where(document, "enable_fsdp") is not None:
        yield Finding(
            f"{at.path} {at.value} is refused",
            (at.label("refused"),),
            ("check_fsdp_config: Invalid checkpoint_type",),
            f"write {' or '.join(_CHECKPOINTS)}",
        )


def _spread(run: LintContext, document: Document) -> Iterator[Finding]:
    """A quantized model is spread over all visible devices, which compute one after another."""
    at, sharded = where(document, "quantization"), where(document, "enable_fsdp")
    kinds = run.environment.devices
    if at is None or sharded is not None or len(kinds) < 2 or run.value("devices.visible"):
        return
    yield Finding(
        "a quantised model is spread over all visible devices",
        (at.label("device_map is auto"),),
        (f"{', '.join(each.title for each in kinds.values())} are of different kinds",),
        "make one visible: CUDA_DEVICE_ORDER=PCI_BUS_ID and CUDA_VISIBLE_DEVICES",
        severity="warning",
        consequence="slow",
    )


def _imported(run: LintContext, document: Document) -> Iterator[Finding]:
    first = next(iter(document.found.values()), None)
    if first is not None and run.runs(_WITHOUT_CCL):
        yield Finding(
            f"llama-cookbook cannot be imported beside {run.release('accelerate')}",
            (first.key_label("started by finetuning.py"),),
            ("ImportError: cannot import name is_ccl_available from accelerate.utils",),
            "use accelerate 1.12 or older",
        )
