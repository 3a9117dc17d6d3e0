"""Keys that nobody reads under that name or in that place."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cache
from typing import Any, Final

from tunec.compiler.consumers.schemas import known_releases
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.known_keys import (
    BF16_SCALING,
    CLASSES,
    TOOLS,
    around,
    fields_of,
    foreign_keys,
    homes_of,
    is_whole,
    keys_at,
    keys_ever,
    known_at,
    known_in_other_releases,
    of_unknown,
    script_keys,
)
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.compiler.lints.schemas import Fault, faults

_LIKE: Final = 0.88
"""As in `known`: how alike two names are when one is taken for a misspelling of the other."""


@rule(
    "misspelt-key",
    "error",
    "parse",
    consumers=("llamafactory", "axolotl", "accelerate", "trl"),
    sources=(
        "llamafactory 0.9.5 hparams/parser.py `_parse_args`; axolotl 0.19.0 "
        "utils/schemas/config.py; accelerate 1.15.0 commands/config/config_args.py "
        "`BaseConfig.from_yaml_file`; trl 0.19.0 to 1.16.0 scripts/utils.py `TrlParser`, which "
        "drops them before"
    ),
    reads=tuple(f"{kind}:*" for kind in (*TOOLS, *CLASSES)),
)
def misspelt_key(run: LintContext) -> Iterator[Finding]:
    """A key that is nearly one of the tool's."""
    for kind in (*TOOLS, *CLASSES):
        here = around(run, kind)
        keys = frozenset[str]().union(*(keys_at(kind, each) for each in here))
        for document in run.of(kind):
            keys |= _of_script(document)
            for path, place in document.found.items():
                if "." in path or document.is_view or _is_known(kind, path):
                    continue
                near = _near(path, keys - frozenset(document.found)) or _near(path, keys)
                if near is not None:
                    yield _finding(run, place, near)


def _is_known(kind: str, path: str) -> bool:
    every = fields_of("training_arguments", "4.40.2") | fields_of("training_arguments", "5.23.0")
    if kind not in CLASSES:
        return path in keys_ever(kind)
    return path in keys_ever(kind) | every | script_keys()


def _of_script(document: Document) -> frozenset[str]:
    """The other keys of a recipe of TRL's scripts; the handbook's own had `dataset_configs`."""
    is_recipe = document.kind in CLASSES and document.format != "shell"
    is_own = document.get("dataset_mixer") is not None
    return script_keys() if is_recipe and not is_own else frozenset()


def _near(path: str, keys: frozenset[str]) -> str | None:
    for each in nearest(path, keys)[:1]:
        if SequenceMatcher(None, path, each).ratio() >= _LIKE:
            return each
    return None


def is_near(name: str, keys: frozenset[str]) -> bool:
    """Whether a name is told here, as a misspelling of one of some keys."""
    return _near(name, keys) is not None


def _finding(run: LintContext, place: Place, near: str) -> Finding:
    consequence = of_unknown(run, place.document)
    silent, is_free = consequence == "silent", near not in place.document.found
    return Finding(
        f"{place.document.kind} has no key `{place.path}`",
        (place.key_label("ignored" if silent else "refused"),),
        ("it is silently dropped",) if silent else (),
        f"did you mean `{near}`?" if is_free else f"remove it: `{near}` is there",
        Fix((place.renamed(near) if is_free else place.removed(),), "unsafe"),
        consequence=consequence,
    )


_OF_ENGINES: Final = ("msamp",)
"""Blocks of engines made of DeepSpeed: accelerate 1.4.0 to 1.15.0 utils/dataclasses.py
`DeepSpeedPlugin` writes it for MS-AMP, whose `msamp.deepspeed.initialize` reads it."""


@rule(
    "unknown-key",
    "error",
    "silent",
    consumers=("deepspeed", "transformers"),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `DeepSpeedConfig._initialize_params`: "
            "keys at the top are looked up by name and others never looked at; "
            "runtime/config_utils.py `DeepSpeedConfigModel`: blocks forbid extra keys"
        ),
        "deepspeedai/DeepSpeed#653, #774, #1809",
        "transformers 4.40.2 to 5.23.0 hf_argparser.py `HfArgumentParser.parse_dict`",
    ),
    reads=("deepspeed:*", "hf:*"),
)
def unknown_key(run: LintContext) -> Iterator[Finding]:
    """A key that its reader does not know."""
    for document in run.of("deepspeed"):
        if is_whole(document):
            for fault in faults(run, document):
                if fault.what == "unknown" and not _is_told_elsewhere(run, fault):
                    yield _in_deepspeed(run, fault)
    for document in run.of("hf"):
        if not document.is_partial:
            for place, near in foreign_keys(run, document):
                yield _near_miss(place, near)


def _is_told_elsewhere(run: LintContext, fault: Fault) -> bool:
    name = fault.path.rpartition(".")[2]
    return (
        fault.path in (*BF16_SCALING, *_OF_ENGINES)
        or fault.path.startswith("optimizer.params.")  # optimizer-parameter-refused
        or name.startswith(("_", "//", "#"))
        or bool(homes_of(run, fault.path))
        or bool(known_in_other_releases(run, "deepspeed", fault.path))
    )


def _in_deepspeed(run: LintContext, fault: Fault) -> Finding:
    holder, _, name = fault.path.rpartition(".")
    near = nearest(name, known_at(fault.schema))
    where = f" in {holder}" if holder else ""
    # a block drops "auto" before it looks at its keys
    is_dropped = fault.place.value == "auto" and not holder.startswith("scheduler")
    is_refused = fault.is_refused and not is_dropped
    return Finding(
        f"DeepSpeed knows no key `{name}`{where}",
        (fault.place.key_label("refused" if is_refused else "ignored"),),
        (f"by the keys of {run.release('deepspeed')}",),
        did_you_mean(near) or "remove it",
        Fix((fault.place.renamed(near[0]),), "unsafe") if len(near) == 1 else None,
        consequence="init" if is_refused else "silent",
    )


def _near_miss(place: Place, near: str) -> Finding:
    return Finding(
        f"TrainingArguments has no field `{place.path}`",
        (place.key_label("no field"),),
        (),
        f"did you mean `{near}`?",
        Fix((place.renamed(near),), "unsafe"),
        consequence="parse",
    )


@rule(
    "misplaced-key",
    "error",
    "silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `DeepSpeedConfig._initialize_params`, "
            "runtime/config_utils.py `DeepSpeedConfigModel`"
        ),
        "deepspeedai/DeepSpeed#2721",
    ),
    reads=("deepspeed:*",),
)
def misplaced_key(run: LintContext) -> Iterator[Finding]:
    """A key of DeepSpeed at another level than the one where it is looked up."""
    for document in run.of("deepspeed"):
        if not is_whole(document):
            continue
        for fault in faults(run, document):
            homes = homes_of(run, fault.path)
            if fault.what != "unknown" or not homes or fault.path in BF16_SCALING:
                continue
            # a block drops "auto" before it looks at its keys
            is_refused = fault.is_refused and fault.place.value != "auto"
            yield Finding(
                f"`{fault.path}` is not where DeepSpeed looks for it",
                (fault.place.key_label("refused here" if is_refused else "ignored here"),),
                (f"by the keys of {run.release('deepspeed')}",),
                f"it belongs at {quoted(homes)}",
                consequence="init" if is_refused else "silent",
            )


_COMMITS: Final = ("da2fe37", "f6ee34e", "3f79b54")


@rule(
    "key-outside-its-block",
    "error",
    "parse",
    consumers=("transformers",),
    sources=(
        "zai-org/GLM-4 da2fe37, f6ee34e and 3f79b54 finetune.py, finetune_vision.py "
        "`FinetuningConfig.from_dict`: cls(**kwargs)"
    ),
    reads=("glm4:data_config",),
)
def key_outside_its_block(run: LintContext) -> Iterator[Finding]:
    """A key at the top of GLM-4's file that belongs into its training arguments."""
    for document in run.of("glm4"):
        if document.is_view or document.get("data_config") is None:
            continue
        for path, place in document.found.items():
            if "." in path or path in _top():
                continue
            near = nearest(path, _top())[:1]
            home = "training_args" if path in _arguments() else None
            yield Finding(
                f"GLM-4's file has no key `{path}` at the top",
                (place.key_label("refused"),),
                ("FinetuningConfig is made of the keys: unexpected keyword argument",),
                f"write it below {home}"
                if home
                else f"did you mean `{near[0]}`?"
                if near
                else "remove it",
            )


@cache
def _top() -> frozenset[str]:
    found: list[dict[str, Any]] = [schema(f"glm4/{each}.json") for each in _COMMITS]
    return frozenset(name for each in found for name in each["properties"]) | {"swanlab"}


@cache
def _arguments() -> frozenset[str]:
    releases = known_releases("training_arguments")
    return frozenset[str]().union(*(fields_of("training_arguments", each) for each in releases))


@rule(
    "loss-scale-under-bf16",
    "error",
    "init",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/precision_config.py `DeepSpeedBF16Config`",
        "FlagOpen/FlagEmbedding#1487, ielab/llm-rankers#2",
    ),
    reads=keys("deepspeed", *BF16_SCALING),
)
def loss_scale_under_bf16(run: LintContext) -> Iterator[Finding]:
    """Keys of fp16's loss scaling in the block bf16."""
    for document in run.of("deepspeed"):
        for fault in faults(run, document):
            if fault.what != "unknown" or fault.path not in BF16_SCALING:
                continue
            yield Finding(
                f"`{fault.path}` is a key of fp16: bf16 has no loss scale",
                (fault.place.key_label("refused" if fault.is_refused else "ignored"),),
                (f"by the keys of {run.release('deepspeed')}",),
                "remove it",
                Fix((fault.place.removed(),), "safe"),
                consequence="init" if fault.is_refused else "silent",
            )


_BLOCKS: Final = ("amp", "progressive_layer_drop")


@rule(
    "block-without-its-switch",
    "error",
    "init",
    consumers=("deepspeed<0.19",),
    sources=(
        "deepspeed 0.14.5 to 0.18.9 runtime/config.py `get_amp_params`, `get_pld_params`: "
        'pop("enabled") of a copy of the block; 0.19 refuses both blocks by name'
    ),
    reads=keys("deepspeed", *_BLOCKS),
)
def block_without_its_switch(run: LintContext) -> Iterator[Finding]:
    """A block of ds_config.json that is looked into, and does not say whether it is turned on."""
    for document in run.of("deepspeed"):
        for name in _BLOCKS:
            block = document.get(name)
            if block is None or block.node.fields is None or "enabled" in block.node.fields:
                continue
            yield Finding(
                f"`{name}` has no `enabled`, which DeepSpeed asks for",
                (block.key_label("refused"),),
                ("KeyError: 'enabled'",),
                f"write {name}.enabled, or remove {name}",
            )
