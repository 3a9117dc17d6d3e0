"""A word in accelerate's file that none of the programs behind it takes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted, shown
from tunec.compiler.lints.accelerate.counted import engine
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.keys.tools import around
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_BLOCKS: Final[Mapping[str, str | None]] = {
    "deepspeed_config": "DEEPSPEED",
    "fsdp_config": "FSDP",
    "dynamo_config": None,
    "fp8_config": None,
    "parallelism_config": None,
}
"""Block -> the engine that reads it; None: every one."""
_TOLD_ELSEWHERE: Final = frozenset({"fsdp_version", "version"}) | {
    prefix + name
    for prefix in ("", "fsdp_")
    for name in ("sharding_strategy", "state_dict_type", "reshard_after_forward")
}
_STAGES: Final = ("0", "1", "2", "3")
_PATH: Final = "accelerate/{}.json"


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        schemas = [schema(_PATH.format(each)) for each in around(run, "accelerate")]
        if not document.is_view:
            yield from _place_of_work(document.get("compute_environment"))
        if document.is_view or not schemas or document.value("compute_environment") not in _LOCAL:
            continue
        for key in ("distributed_type", "mixed_precision"):
            yield from _word(document.get(key), [each["properties"].get(key) for each in schemas])
        for block, name in _BLOCKS.items():
            started = engine(document)
            if name is None or (started is not None and started.value == name):
                yield from _of_block(document, block, schemas)
    for document in launches(run, "accelerate"):
        schemas = [schema(_PATH.format(each)) for each in around(run, "accelerate")]
        if schemas:
            yield from _of_flags(document, schemas)


_LOCAL: Final = (None, "LOCAL_MACHINE")
_SAGEMAKER: Final = "AMAZON_SAGEMAKER"


def _place_of_work(place: Place | None) -> Iterator[Finding]:
    """Of these two words, and in capitals: what is not the first is read as SageMaker's file."""
    if place is not None and place.word is not None and place.word not in (*_LOCAL, _SAGEMAKER):
        yield _finding(place, ("LOCAL_MACHINE", _SAGEMAKER), "parse")


def _of_flags(document: Document, schemas: list[Any]) -> Iterator[Finding]:
    """The same words as flags of `accelerate launch`."""
    precision = [each["properties"].get("mixed_precision") for each in schemas]
    for found in _word(document.get("flags.mixed_precision"), precision):
        yield replace(found, consequence="parse")
    for block, switch in (("deepspeed_config", "use_deepspeed"), ("fsdp_config", "use_fsdp")):
        if document.value(f"flags.{switch}") is not True:
            continue
        inner = [each["properties"].get(block, {}).get("properties", {}) for each in schemas]
        for name in inner[0]:
            place = document.get(f"flags.{name}")
            if name == "zero_stage":
                yield from _stage(place)
            elif name not in _TOLD_ELSEWHERE:
                yield from _word(place, [each.get(name) for each in inner])


def _of_block(document: Document, block: str, schemas: list[Any]) -> Iterator[Finding]:
    holder = document.get(block)
    for name in holder.node.fields or () if holder is not None else ():
        if name in _TOLD_ELSEWHERE:
            continue
        place = document.get(f"{block}.{name}")
        inner = [each["properties"].get(block, {}).get("properties", {}) for each in schemas]
        if name == "zero_stage":
            yield from _stage(place)
        else:
            yield from _word(place, [each.get(name) for each in inner])


def _stage(place: Place | None) -> Iterator[Finding]:
    if place is not None and place.value is not None and str(place.value) not in _STAGES:
        yield _finding(place, _STAGES, "init")


def _of_fp8(name: str, text: Any, words: tuple[str, ...]) -> bool:
    """The backend is compared in capitals (accelerate 0.34.0 to 1.15.0 `FP8RecipeKwargs`)."""
    return name == "fp8_config.backend" and str(text).upper() in {each.upper() for each in words}


def _word(place: Place | None, schemas: list[Any]) -> Iterator[Finding]:
    """A text that no release around takes, where each of them takes words only."""
    if place is None or not isinstance(place.value, str) or not all(schemas):
        return
    words = [_words(each) for each in schemas]
    if any(_of_fp8(place.path, place.value, each) for each in words):
        return
    if all(words) and not any(place.value in each for each in words):
        yield _finding(place, words[0], "init" if "." in place.path else "parse")


def _words(field: Mapping[str, Any]) -> tuple[str, ...]:
    """The words that a field takes; none where it takes other texts too."""
    choices = field.get("anyOf", (field,))
    texts = [word for each in choices for word in each.get("enum", ()) if isinstance(word, str)]
    is_open = any("enum" not in each and each.get("type") != "null" for each in choices)
    return () if is_open else tuple(texts)


def _finding(place: Place, words: tuple[str, ...], consequence: Consequence) -> Finding:
    near = nearest(str(place.value), words) or nearest(str(place.value).upper(), words)
    listed = [word for word in words if word.upper() == word] or list(words)
    return Finding(
        f"`{place.path}` cannot be {shown(place.value)}",
        (place.label("refused"),),
        (f"taken: {quoted(listed)}",),
        f"did you mean {quoted(near[:1])}?" if near else None,
        Fix((place.replaced(near[0]),), "unsafe") if near else None,
        consequence=consequence,
    )


RULE = Rule(
    name="word-of-none",
    severity="error",
    consequence="parse",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/config/config_args.py "
            "`BaseConfig.__post_init__`: DistributedType(word); utils/launch.py "
            "`prepare_multi_gpu_env`, `prepare_deepspeed_cmd_env`: Unknown mixed_precision mode, "
            "Unknown dynamo backend; utils/dataclasses.py `FullyShardedDataParallelPlugin`"
        ),
        "deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py `ZeroStageEnum`; offload_config.py",
    ),
    check=_check,
)
