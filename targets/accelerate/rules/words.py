"""Rules about values in accelerate's file with a wrong type or an unknown word."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted, shown
from tunec.compiler.lints.checks.keys.texts import number_of
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.known_keys import around
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.facts.sharding import SECTION, engine
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.frozen import replace

_COMPARED: Final = (f"{SECTION}cp_size", f"{SECTION}sp_size")
"""Widths that the launcher compares with 1 without converting them."""


@rule(
    "error",
    "parse",
    consumers=("accelerate",),
    reads=keys(
        "accelerate",
        *("main_process_port", "num_machines", "num_processes", "machine_rank", *_COMPARED),
        *("deepspeed_config.gradient_clipping", "deepspeed_config.gradient_accumulation_steps"),
    ),
)
def count_without_a_number(run: LintContext) -> Iterator[Finding]:
    """A count in accelerate's file is text."""
    for document in run.of("accelerate"):
        if document.is_view:
            continue
        port = document.get("main_process_port")
        if port is not None and _is_text(port):
            yield _count_finding(port, "TypeError: the port must be a number")
        machines, processes = document.get("num_machines"), document.get("num_processes")
        if machines is not None and _is_text(machines):
            yield _count_finding(machines, "TypeError: '>' not supported between str and int")
        elif processes is not None and isinstance(processes.value, float):
            yield replace(_count_finding(processes, _FRACTION), consequence="init")
        elif processes is not None and _is_text(processes) and _is_several(machines):
            yield _count_finding(processes, "TypeError: the number is divided by num_machines")
        yield from _of_nodes(document, machines)
        started = engine(document)
        if started is not None and started.value == "DEEPSPEED":
            yield from _of_deepspeed(document)


def _of_nodes(document: Document, machines: Place | None) -> Iterator[Finding]:
    """Findings for a node's rank, which must be an integer, and widths compared with 1."""
    rank = document.get("machine_rank")
    if rank is not None and _is_several(machines) and _is_no_rank(rank):
        yield _count_finding(rank, f"int('{rank.value}') is refused")
    for key in _COMPARED:
        width = document.get(key)
        if width is not None and _is_text(width):
            yield _count_finding(width, "TypeError: '>' not supported between str and int")


def _of_deepspeed(document: Document) -> Iterator[Finding]:
    """Findings for numbers that reach the plugin as the text of an environment variable."""
    clipping = document.get("deepspeed_config.gradient_clipping")
    steps = document.get("deepspeed_config.gradient_accumulation_steps")
    if clipping is not None and _is_text(clipping) and not _is_number(clipping.value):
        why = f"float('{clipping.value}') is refused when the engine is set up"
        yield replace(_count_finding(clipping, why), consequence="init")
    if steps is not None and _is_no_count(steps):
        why = f"it is kept as the text {str(steps.value)!r}, so no batch size can be computed"
        yield replace(_count_finding(steps, why), consequence="init")


def _is_number(text: str) -> bool:
    return text.strip().lower() in ("auto", "none") or number_of(text.strip()) is not None


def _is_no_count(at: Place) -> bool:
    if isinstance(at.value, float):
        return True
    is_digits = str(at.value).strip().isdigit()
    return _is_text(at) and not is_digits and at.value.strip().lower() not in ("auto", "none")


def _is_no_rank(at: Place) -> bool:
    return _is_text(at) and not str(at.value).strip().isdigit()


def _is_text(at: Place) -> bool:
    return isinstance(at.value, str) and not _is_open(at.value)


def _is_several(machines: Place | None) -> bool:
    """Whether there are several machines; on one, torchrun reads the word: `gpu` or digits."""
    return machines is not None and isinstance(machines.value, int) and machines.value > 1


def _is_open(text: str) -> bool:
    """Whether a text has a placeholder that is filled in before accelerate reads it."""
    return any(sign in text for sign in "${<") or _TO_BE_PUT.fullmatch(text) is not None


_TO_BE_PUT: Final = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
"""A placeholder such as `CONFIG_HOST_NUM`, which the person who starts the job replaces by a
number."""


_FRACTION: Final = "torchrun gets it as text, and takes a whole number, gpu, cpu or auto"
_HELP: Final = {"num_processes": "write the total number of processes over all machines"}


def _count_finding(at: Place, why: str) -> Finding:
    text = str(at.value).strip()
    number = int(text) if text.isdigit() else None
    if isinstance(at.value, float) and at.value.is_integer():
        number = int(at.value)
    return Finding(
        f"{at.path} is the text {at.value!r}, not a number"
        if isinstance(at.value, str)
        else f"{at.path} is {at.value}, not a whole number",
        (at.label("not a number" if isinstance(at.value, str) else "not whole"),),
        (why,),
        _HELP.get(at.path, "write the number") if number is None else f"write {number}",
        Fix((at.replaced(number),), "safe") if number is not None else None,
    )


_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "gpu_ids": ("the launcher splits it at its commas", "flags.gpu_ids"),
    "mixed_precision": ("the launcher converts it to lower case", "flags.mixed_precision"),
    "dynamo_backend": ("the launcher converts it to upper case", "flags.dynamo_backend"),
    "dynamo_config.dynamo_backend": (
        "the launcher converts it to upper case",
        "flags.dynamo_backend",
    ),
}
"""Key -> how the text is used, and the flag that replaces the key."""

_TYPED_BLOCKS: Final = (
    *("deepspeed_config", "fsdp_config", "dynamo_config", "megatron_lm_config"),
    *("parallelism_config", "fp8_config"),
)
_ENGINES: Final = {
    "deepspeed_config": "DEEPSPEED",
    "fsdp_config": "FSDP",
    "megatron_lm_config": "MEGATRON_LM",
}
"""The engine that reads a block; other blocks are read with any engine."""


_REFUSED: Final = "accelerate>=0.34"
"""accelerate 0.30.1, 0.33.0 commands/config/config_args.py `from_yaml_file` converts false to "no";
`process_config`, which replaced it in 0.34 (huggingface/accelerate#3029), does not."""
_OLDER: Final = "the version is not given; releases before 0.34 read it as no"


@rule(
    "error", "parse", consumers=("accelerate",), reads=keys("accelerate", *_TEXTS, *_TYPED_BLOCKS)
)
def word_of_another_type(run: LintContext) -> Iterator[Finding]:
    """A value in accelerate's file must be text or a block, but is neither."""
    flags = {name for each in launches(run, "accelerate") for name in each.found}
    for document in run.of("accelerate"):
        if document.is_view:
            continue
        for key, (why, flag) in _TEXTS.items():
            at = document.get(key)
            if at is not None and flag not in flags and not isinstance(at.value, str | None):
                yield from _by_release(run, at, _no_text(at, why))
        for block in _TYPED_BLOCKS:
            yield from _no_block(document, block)


def _by_release(run: LintContext, at: Place, found: Finding) -> Iterator[Finding]:
    """The finding, unless releases before 0.34 accept a `mixed_precision` read as false."""
    is_no = at.path == "mixed_precision" and at.value is False and at.document.format == "yaml"
    is_refused = run.runs(_REFUSED) if is_no else True
    if is_refused:
        yield found
    elif is_refused is None:
        yield replace(found, notes=(*found.notes, _OLDER), severity="warning")


def _no_text(at: Place, why: str) -> Finding:
    word = _meant(at)
    return Finding(
        f"{at.path} is {shown(at.value)}, not text",
        (at.label("not text"),),
        (f"{why}: AttributeError", *_yaml(at)),
        f'write "{word}"' if word else "write a word",
        Fix((at.replaced(word),), "safe") if word else None,
    )


def _yaml(at: Place) -> tuple[str, ...]:
    if at.value is False and at.document.format == "yaml":
        return ("YAML 1.1 reads an unquoted no as false",)
    return ()


def _meant(at: Place) -> str | None:
    """The text with the same meaning, if it is clear."""
    value: Any = at.value
    if at.path == "gpu_ids":
        numbers = value if isinstance(value, list) else [value]
        is_plain = numbers and all(type(each) is int or _is_digits(each) for each in numbers)
        return ",".join(map(str, numbers)) if is_plain else None
    return "no" if value is False else None


def _is_digits(value: Any) -> bool:
    return isinstance(value, str) and value.isdigit()


def _no_block(document: Document, block: str) -> Iterator[Finding]:
    at, engine = document.get(block), document.value("distributed_type")
    if at is None or isinstance(at.value, dict | None):
        return
    is_parsed = block == "deepspeed_config" and not isinstance(at.value, str)
    if not is_parsed and _ENGINES.get(block, engine) != engine:
        return
    yield Finding(
        f"{block} is {shown(at.value)}, not a block of keys",
        (at.label("not read"),),
        (
            "the launcher iterates over its keys: TypeError"
            if is_parsed
            else "the launcher ignores it, and every key of the block keeps its default",
        ),
        f"write it below {block} as deepspeed_config_file"
        if block == "deepspeed_config" and isinstance(at.value, str)
        else f"write the keys below {block}",
        consequence="parse" if is_parsed else "silent",
    )


_WORD_BLOCKS: Final[Mapping[str, str | None]] = {
    "deepspeed_config": "DEEPSPEED",
    "fsdp_config": "FSDP",
    "dynamo_config": None,
    "fp8_config": None,
    "parallelism_config": None,
}
"""Block -> the engine that reads it; None if every engine does."""
_TOLD_ELSEWHERE: Final = frozenset({"fsdp_version", "version"}) | {
    prefix + name
    for prefix in ("", "fsdp_")
    for name in ("sharding_strategy", "state_dict_type", "reshard_after_forward")
}
_STAGES: Final = ("0", "1", "2", "3")
_PATH: Final = "accelerate/{}.json"


@rule(
    "error",
    "parse",
    consumers=("accelerate",),
    reads=(
        *keys("accelerate", "compute_environment", "distributed_type", "mixed_precision"),
        *keys("accelerate", *_WORD_BLOCKS),
        *keys("launch", "flags.mixed_precision", "flags.use_deepspeed", "flags.use_fsdp"),
    ),
)
def word_of_none(run: LintContext) -> Iterator[Finding]:
    """No program behind accelerate's file accepts a word in it."""
    for document in run.of("accelerate"):
        schemas = [schema(_PATH.format(each)) for each in around(run, "accelerate")]
        if not document.is_view:
            yield from _place_of_work(document.get("compute_environment"))
        if document.is_view or not schemas or document.value("compute_environment") not in _LOCAL:
            continue
        for key in ("distributed_type", "mixed_precision"):
            yield from _word(document.get(key), [each["properties"].get(key) for each in schemas])
        for block, name in _WORD_BLOCKS.items():
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
    """The compute environment is neither of the two known words, in capitals.

    A file whose word is not the first is read as SageMaker's.
    """
    if place is not None and place.word is not None and place.word not in (*_LOCAL, _SAGEMAKER):
        yield _word_finding(place, ("LOCAL_MACHINE", _SAGEMAKER), "parse")


def _of_flags(document: Document, schemas: list[Any]) -> Iterator[Finding]:
    """Findings for words that are flags of `accelerate launch`."""
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
        yield _word_finding(place, _STAGES, "init")


_IN_ANY_CASE: Final = frozenset({"backend", "offload_optimizer_device", "offload_param_device"})
"""Words that may be written in any case: accelerate 0.34.0 to 1.15.0 `FP8RecipeKwargs` compares its
backend in capitals; 0.30.1 to 1.15.0 utils/launch.py `prepare_deepspeed_cmd_env` hands the devices
on in small letters."""


def _word(place: Place | None, schemas: list[Any]) -> Iterator[Finding]:
    """The finding for a text that no possible release accepts, if each has a list of words."""
    if place is None or not isinstance(place.value, str) or not all(schemas):
        return
    words = [_words(each) for each in schemas]
    if all(words) and not any(_is_among(place, each) for each in words):
        yield _word_finding(place, words[0], "init" if "." in place.path else "parse")


def _is_among(place: Place, words: tuple[str, ...]) -> bool:
    if place.path.rpartition(".")[2] in _IN_ANY_CASE:
        return place.value.upper() in map(str.upper, words)
    return place.value in words


def _words(field: Mapping[str, Any]) -> tuple[str, ...]:
    """The words that a field accepts; empty if it accepts other texts too."""
    choices = field.get("anyOf", (field,))
    texts = [word for each in choices for word in each.get("enum", ()) if isinstance(word, str)]
    is_open = any("enum" not in each and each.get("type") != "null" for each in choices)
    return () if is_open else tuple(texts)


def _word_finding(place: Place, words: tuple[str, ...], consequence: Consequence) -> Finding:
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
