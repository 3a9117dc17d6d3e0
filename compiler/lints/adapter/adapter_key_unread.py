"""A key of adapter_config.json that its method does not have."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from packaging.version import Version

from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.effective import releases_around
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_MEANT: Final = {
    "lora_rank": "r",
    "rank": "r",
    "lora_r": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "lora_target": "target_modules",
    "lora_target_modules": "target_modules",
    "targets": "target_modules",
    "lora_modules_to_save": "modules_to_save",
    "additional_target": "modules_to_save",
    "lora_bias_type": "bias",
    "rslora": "use_rslora",
    "dora": "use_dora",
    "peft_layers_to_transform": "layers_to_transform",
}
"""What other tools call it, and PEFT's own name."""
_OF_WEIGHTS: Final = (
    *("r", "lora_alpha", "lora_dropout", "target_modules", "use_dora", "use_rslora", "bias"),
    *("init_lora_weights", "rank_pattern", "alpha_pattern", "layers_to_transform"),
)
_PROMPTS: Final = ("PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING")
"""Methods that add to the input, and have no key of those that change weights."""
_OF_LORA: Final = (
    *("lora_alpha", "lora_dropout", "init_lora_weights", "use_dora", "use_rslora", "loftq_config"),
    *("layer_replication", "lora_bias", "target_parameters"),
)
_MOVED: Final[Mapping[str, Mapping[str, str]]] = {
    "LOHA": {"lora_alpha": "alpha", "lora_dropout": "rank_dropout"},
    "LOKR": {"lora_alpha": "alpha", "lora_dropout": "rank_dropout"},
    "OFT": {"lora_dropout": "module_dropout", "block_size": "oft_block_size"},
    "BOFT": {"lora_dropout": "boft_dropout", "block_size": "boft_block_size"},
    "VERA": {"lora_dropout": "vera_dropout"},
    "IA3": {"init_lora_weights": "init_ia3_weights"},
    "FOURIERFT": {"lora_alpha": "scaling"},
    "HRA": {},
}
"""Methods beside LoRA, and their own names for what LoRA's keys say."""
_LACKING: Final[Mapping[str, tuple[str, ...]]] = {
    "BOFT": ("r", "alpha"),
    "FOURIERFT": ("r", "alpha"),
    "HRA": ("alpha",),
    "IA3": ("r", "alpha", "bias", "layers_to_transform", "layers_pattern"),
    "LOHA": ("bias",),
    "LOKR": ("bias",),
    "OFT": ("alpha",),
    "VERA": ("alpha",),
}
"""More that they have not: peft 0.10.0, 0.13.2, 0.15.2, 0.17.1 and 0.21.2 tuners/*/config.py."""
_IGNORED: Final = "PEFT warns of unexpected keywords, and goes on without them"
_ALWAYS: Final = frozenset({"auto_mapping", "peft_version", "base_model_class", "parent_library"})


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("peft"):
        kind = str(document.value("peft_type", "")).upper()
        if document.is_view:
            continue
        yield from _unnamed(document)
        if kind == "LORA":
            yield from _of_lora(run, document)
        elif kind in _PROMPTS:
            yield from _of_prompts(document, kind)
        elif kind in _MOVED:
            yield from _of_relatives(document, kind)


def _unnamed(document: Document) -> Iterator[Finding]:
    """`method: lora`, by which people say what `peft_type` says."""
    at = document.get("method")
    if at is not None and document.get("peft_type") is None:
        yield replace(_finding(at, [], "PEFT's file"), help="write peft_type", severity="note")


def _of_lora(run: Run, document: Document) -> Iterator[Finding]:
    known = frozenset(
        name
        for release in known_releases("lora_config")
        for name in class_schema("lora_config", release)["properties"]
    )
    release = run.release("peft")
    if release.is_named and str(release.version) > max(known_releases("lora_config")):
        return  # keys may have come since
    for path, at in document.found.items():
        if "." in path or path in known or path in _ALWAYS or path.startswith("_"):
            continue
        near = [_MEANT[path]] if path in _MEANT else nearest(path, known - set(document.found))[:1]
        yield _finding(at, near, "LORA")
    if release.is_named:
        yield from _come_later(run, document)


def _come_later(run: Run, document: Document) -> Iterator[Finding]:
    """Keys of a later release: a warning from PEFT 0.14 on, and no adapter at all before."""
    release = run.release("peft")
    around = releases_around("lora_config", str(release.version))
    here = [class_schema("lora_config", each)["properties"] for each in around]
    every = sorted(known_releases("lora_config"), key=Version)
    is_refused = run.runs("peft<0.14") is True
    for path, at in document.found.items():
        if "." in path or path in _ALWAYS or any(path in each for each in here):
            continue
        later = [each for each in every if path in class_schema("lora_config", each)["properties"]]
        if not later or not (is_refused or at.value not in (None, False, [], {}, "none")):
            continue
        why = f"TypeError: unexpected keyword argument {path!r}" if is_refused else _IGNORED
        yield Finding(
            f"{release} has no key `{path}`",
            (at.key_label("refused" if is_refused else "not read"),),
            (why, f"known to peft {later[0]}"),
            f"use peft {later[0]} or later, or remove it",
            consequence="parse" if is_refused else "silent",
        )


def _of_prompts(document: Document, kind: str) -> Iterator[Finding]:
    for key in _OF_WEIGHTS:
        at = document.get(key)
        if at is not None and at.value not in (None, [], {}, False):
            yield _finding(at, [], kind)


def _of_relatives(document: Document, kind: str) -> Iterator[Finding]:
    own = _MOVED[kind]
    for key in dict.fromkeys((*own, *_OF_LORA, *_LACKING[kind])):
        at = document.get(key)
        if at is not None and at.value not in (None, [], {}, False, "none"):
            free = [own[key]] if key in own and own[key] not in document.found else []
            yield _finding(at, free, kind)


def _finding(at: Place, near: list[str], kind: str) -> Finding:
    return Finding(
        f"{kind} has no key `{at.path}`",
        (at.key_label("not read"),),
        (_IGNORED,),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((at.renamed(near[0]),), "unsafe") if near else None,
        severity=None if near else "warning",
    )


RULE = Rule(
    name="adapter-key-unread",
    severity="error",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "peft 0.21.2 config.py `PeftConfigMixin.from_peft_type`: Unexpected keyword arguments "
            "... these are ignored; before 0.14 and through `get_peft_config` a TypeError"
        ),
        (
            "peft 0.10.0 to 0.21.2 tuners/prompt_tuning, prefix_tuning, p_tuning config.py: fields "
            "of the input's virtual tokens alone; loha, lokr, oft, boft, vera, ia3, fourierft, hra "
            "config.py; run: LoHa with lora_alpha warns and keeps alpha 8"
        ),
    ),
    check=_check,
)
