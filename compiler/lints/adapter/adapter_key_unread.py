"""A key of adapter_config.json that its method does not have."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.document import Document
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
_IGNORED: Final = "PEFT warns of unexpected keywords, and goes on without them"
_ALWAYS: Final = frozenset({"auto_mapping", "peft_version", "base_model_class", "parent_library"})


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("peft"):
        kind = str(document.value("peft_type", "")).upper()
        if document.is_view:
            continue
        if kind == "LORA":
            yield from _of_lora(run, document)
        elif kind in _PROMPTS:
            yield from _of_prompts(document, kind)


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


def _of_prompts(document: Document, kind: str) -> Iterator[Finding]:
    for key in _OF_WEIGHTS:
        at = document.get(key)
        if at is not None and at.value not in (None, [], {}, False):
            yield _finding(at, [], kind)


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
            "of the input's virtual tokens alone"
        ),
    ),
    check=_check,
)
