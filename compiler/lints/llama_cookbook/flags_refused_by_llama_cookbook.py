"""Flags that llama-cookbook's finetuning refuses, or that cannot train."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import Pair, refused_pair, where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

KIND: Final = "llama-cookbook"
_EIGHT: Final = "8bit quantization is not supported with FSDP"
_PAIRS: Final = (
    Pair("quantization=8bit", "enable_fsdp", _EIGHT),
    Pair("quantization=true", "enable_fsdp", f"without a word it is 8bit: {_EIGHT}"),
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


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of(KIND):
        for pair in _PAIRS:
            yield from refused_pair(run, document, pair)
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


def _model(run: Run, document: Document) -> Iterator[Finding]:
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


def _alone(run: Run, document: Document) -> Iterator[Finding]:
    """FSDP reads what torchrun sets; without FSDP several processes are as many runs."""
    at = document.get("enable_fsdp")
    for launcher in launches(run, "python", "torchrun"):
        count = launcher.value("per_node")
        place = launcher.get("per_node") or launcher.get("launcher")
        if launcher.name != document.name or place is None:
            continue
        if launcher.value("launcher") == "python" and at is not None and at.value:
            yield Finding(
                "enable_fsdp in a process that no launcher started",
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
    """FSDP's form of a checkpoint is a member of torch's enumeration, by its whole name."""
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


def _spread(run: Run, document: Document) -> Iterator[Finding]:
    """A quantised model is laid over every device in sight, and trained by one after the other."""
    at, sharded = where(document, "quantization"), where(document, "enable_fsdp")
    kinds = run.environment.devices
    if at is None or sharded is not None or len(kinds) < 2 or run.value("devices.visible"):
        return
    yield Finding(
        "a quantised model is laid over all devices in sight",
        (at.label("device_map is auto"),),
        (f"{', '.join(each.title for each in kinds.values())} are of different kinds",),
        "show it one: CUDA_DEVICE_ORDER=PCI_BUS_ID and CUDA_VISIBLE_DEVICES",
        severity="warning",
        consequence="slow",
    )


def _imported(run: Run, document: Document) -> Iterator[Finding]:
    first = next(iter(document.found.values()), None)
    if first is not None and run.runs(_WITHOUT_CCL):
        yield Finding(
            f"llama-cookbook cannot be imported beside {run.release('accelerate')}",
            (first.key_label("started by finetuning.py"),),
            ("ImportError: cannot import name is_ccl_available from accelerate.utils",),
            "use accelerate 1.12 or older",
        )


RULE = Rule(
    name="flags-refused-by-llama-cookbook",
    severity="error",
    consequence="init",
    consumers=("llama-cookbook",),
    sources=(
        (
            "meta-llama/llama-cookbook 0e00335, llama-recipes 0.0.4 and 0.0.5 finetuning.py "
            "`main`: ValueError; utils/config_utils.py `generate_peft_config`, "
            "`get_dataloader_kwargs`, `check_fsdp_config`"
        ),
        (
            "llama-cookbook 0.0.5.post1 utils/train_utils.py: imports is_ccl_available; accelerate "
            "1.13.0 utils/__init__.py has none, 1.12.0 has"
        ),
        "meta-llama/llama-cookbook#240 (Cannot flatten integer dtype tensors), #556, #359",
    ),
    check=_check,
)
