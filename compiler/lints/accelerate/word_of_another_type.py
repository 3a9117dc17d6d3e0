"""What accelerate's file has to say as text or as a block, and says as something else."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import shown
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    "gpu_ids": ("the launcher splits it at its commas", "flags.gpu_ids"),
    "mixed_precision": ("the launcher asks for it in lower case", "flags.mixed_precision"),
    "dynamo_backend": ("the launcher asks for it in capitals", "flags.dynamo_backend"),
    "dynamo_config.dynamo_backend": (
        "the launcher asks for it in capitals",
        "flags.dynamo_backend",
    ),
}
"""Key -> what is done with the text, and the flag that takes its place."""

_BLOCKS: Final = (
    *("deepspeed_config", "fsdp_config", "dynamo_config", "megatron_lm_config"),
    *("parallelism_config", "fp8_config"),
)
_ENGINES: Final = {
    "deepspeed_config": "DEEPSPEED",
    "fsdp_config": "FSDP",
    "megatron_lm_config": "MEGATRON_LM",
}
"""The engine that reads a block; what is not here is read whatever the engine."""


_REFUSED: Final = "accelerate>=0.34"
"""accelerate 0.30.1, 0.33.0 commands/config/config_args.py `from_yaml_file` makes "no" of false;
`process_config`, which took its place in 0.34 (huggingface/accelerate#3029), does not."""
_OLDER: Final = "nobody names the version; releases before 0.34 take it for no"


def _check(run: Run) -> Iterator[Finding]:
    flags = {name for each in launches(run, "accelerate") for name in each.found}
    for document in run.of("accelerate"):
        if document.is_view:
            continue
        for key, (why, flag) in _TEXTS.items():
            at = document.get(key)
            if at is not None and flag not in flags and not isinstance(at.value, str | None):
                yield from _by_release(run, at, _no_text(at, why))
        for block in _BLOCKS:
            yield from _no_block(document, block)


def _by_release(run: Run, at: Place, found: Finding) -> Iterator[Finding]:
    """A `mixed_precision` that YAML read as false is a word to releases before 0.34."""
    is_no = at.path == "mixed_precision" and at.value is False and at.document.format == "yaml"
    is_refused = run.runs(_REFUSED) if is_no else True
    if is_refused:
        yield found
    elif is_refused is None:
        yield replace(found, notes=(*found.notes, _OLDER), severity="warning")


def _no_text(at: Place, why: str) -> Finding:
    word = _meant(at)
    return Finding(
        f"{at.path} is {shown(at.value)}, and no text",
        (at.label("no text"),),
        (f"{why}: AttributeError", *_yaml(at)),
        f'write "{word}"' if word else "write a word",
        Fix((at.replaced(word),), "safe") if word else None,
    )


def _yaml(at: Place) -> tuple[str, ...]:
    if at.value is False and at.document.format == "yaml":
        return ("YAML 1.1 reads an unquoted no as false",)
    return ()


def _meant(at: Place) -> str | None:
    """The text that says the same, where that is plain."""
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
        f"{block} is {shown(at.value)}, and no block of keys",
        (at.label("not read"),),
        (
            "the launcher goes through its keys: TypeError"
            if is_parsed
            else "the launcher passes over it, and every key of the block keeps its default",
        ),
        f"write it below {block} as deepspeed_config_file"
        if block == "deepspeed_config" and isinstance(at.value, str)
        else f"write the keys below {block}",
        consequence="parse" if is_parsed else "silent",
    )


RULE = Rule(
    name="word-of-another-type",
    severity="error",
    consequence="parse",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`: "
            'args.gpu_ids.split(","); isinstance(attr, dict) of each block; utils/launch.py '
            "`prepare_multi_gpu_env`: args.mixed_precision.lower(), args.dynamo_backend.upper()"
        ),
        "YAML 1.1 type repository, bool (yaml.org/type/bool.html); Ziems/arbor#156",
    ),
    check=_check,
)
