"""Lists of targets that are written in a form which matches nothing."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.facts.launch import starts_one_of
from tunec.compiler.lints.facts.lora import Lora, adapters, is_plain, lora_keys, loras
from tunec.compiler.lints.facts.model import parts, unmatched
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

_LISTS = ("target_modules", "modules_to_save", "exclude_modules")


@rule(
    "regex-in-target-list",
    "error",
    "init",
    consumers=("peft",),
    reads=lora_keys("target_modules", "exclude_modules"),
)
def regex_in_target_list(run: LintContext) -> Iterator[Finding]:
    """A regular expression stands in a list of LoRA's targets."""
    for lora in adapters(run):
        if (at := lora.place("target_modules")) is not None:
            yield from _targets(lora, at)
        if (at := lora.place("exclude_modules")) is not None:
            yield from _excluded(lora, at)


def _targets(lora: Lora, at: Place) -> Iterator[Finding]:
    names = lora.targets
    if not isinstance(names, tuple):
        return
    if len(names) == 1 and lora.document.kind in TRL:
        return  # TRL makes a string of it
    lost = [each for each in names if not is_plain(each)]
    if not lost:
        return
    is_all = len(lost) == len(names)
    yield Finding(
        f"{quoted(lost, 'and')} in a list of targets is no expression, and matches no module",
        (at.label("names, letter by letter"),),
        ("PEFT compiles target_modules only where it is one string",),
        "write one string: " + "|".join(f"({each})" for each in names),
        severity=None if is_all else "warning",
        consequence=None if is_all else "silent",
    )


def _excluded(lora: Lora, at: Place) -> Iterator[Finding]:
    lost = [each for each in lora.excluded if not is_plain(each)]
    if lost:
        yield Finding(
            f"{quoted(lost, 'and')} in a list of exclude_modules is no expression",
            (at.label("excludes nothing"),),
            ("PEFT compiles exclude_modules only where it is one string",),
            "write one string",
            severity="warning",
            consequence="silent",
        )


_KEYS: Final = ("lora_target_modules", "target_modules", "lora_modules_to_save")
_KINDS: Final = ("hf", "sft", "dpo", "grpo", "peft", "axolotl")
_USUAL: Final = frozenset(
    {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"),
        *("embed_tokens", "out_proj", "qkv_proj", "gate_up_proj", "query_key_value", "dense"),
        *("dense_h_to_4h", "dense_4h_to_h", "c_attn", "c_proj", "fc1", "fc2", "to_q", "to_k"),
        *("to_v", "to_out.0", "query", "key", "value"),
    }
)
_SPLIT: Final = ("lora_enable", "llm_type")
"""Flags of scripts whose key of that name is a text of their own."""
_LISTED: Final = re.compile(r"(?:\A|/)(?:fastchat/train|trl/scripts|examples/scripts)/\w+\.py\Z")
"""lm-sys/FastChat 0e6d3e4 fastchat/train/train_lora.py `LoraArguments`, as QwenLM/Qwen 2df8e8a
finetune.py, which has `q_lora` too: List[str]; trl 0.9.6 to 1.16.0 trainer/model_config.py."""


@rule(
    "targets-in-one-word",
    "error",
    "init",
    consumers=("peft", "trl", "transformers", "axolotl"),
    reads=keys("|".join(_KINDS), *_KEYS),
)
def targets_in_one_word(run: LintContext) -> Iterator[Finding]:
    """Names of layers with commas between them, where a reader takes the whole for one name."""
    for document in run.of(*_KINDS):
        if document.is_view or any(document.get(key) for key in _SPLIT):
            continue
        for key in _KEYS:
            at = document.get(key)
            if at is not None and (text := _one_word(at)) is not None:
                found = _finding(document, at, text)
                yield found if _takes_words(run, document) else replace(found, certain=False)
            elif at is not None:
                yield from _run_together(run, at)


def _takes_words(run: LintContext, document: Document) -> bool:
    """Whether the key is a list to whoever reads it; a script may divide a text of its own."""
    is_known = document.kind != "hf" or document.format != "shell" or "q_lora" in document.found
    return is_known or starts_one_of(run, document, _LISTED)


def _run_together(run: LintContext, at: Place) -> Iterator[Finding]:
    """Two names between which a comma was left out; `lora-target-unused` knows models' own."""
    names = at.value if isinstance(at.value, list) and run.model is None else []
    for name in names:
        halves = _halves(name) if isinstance(name, str) and is_plain(name) else None
        if halves is None:
            continue
        is_all = len(names) == 1
        yield Finding(
            f"{at.path} names a layer {name!r}, which is two names",
            (at.label("no layer is called so"),),
            ("texts that stand side by side in Python are one text",),
            f"write {halves[0]}, {halves[1]}",
            severity=None if is_all else "warning",
            consequence=None if is_all else "silent",
        )


def _halves(name: str) -> tuple[str, str] | None:
    """Two names of layers that make up a name: two that are usual, or two with one beginning."""
    for at in range(1, len(name)):
        first, second = name[:at], name[at:]
        if first in _USUAL and second in _USUAL:
            return first, second
        block, dot, leaf = first.rpartition(".")
        other = second.removeprefix(f"{block}.")
        are_siblings = leaf in _USUAL or (leaf[:-1] == other[:-1] and len(leaf) == len(other) > 1)
        if dot and other != second and are_siblings:
            return first, second
    return None


def _one_word(at: Place) -> str | None:
    """The one word of a list, if it has commas; a text in a file is a regex, another rule's."""
    value = at.value
    is_list = isinstance(value, list) and len(value) == 1
    if not is_list and not (at.document.format == "shell" and at.document.kind == "hf"):
        return None
    word = value[0] if is_list else value
    return word if isinstance(word, str) and "," in word and is_plain(word) else None


def _finding(document: Document, at: Place, text: str) -> Finding:
    names = [each.strip() for each in text.split(",") if each.strip()]
    is_flag = document.format == "shell"
    return Finding(
        f"{at.path} names one layer, {text!r}",
        (at.label("one word"),),
        ("names are not split at commas: no layer of any model is called so",),
        f"write --{at.path} {' '.join(names)}" if is_flag else "write a list",
        None if is_flag else Fix((at.replaced(names),), "safe"),
    )


@rule(
    "exclusion-matches-nothing",
    "warning",
    "silent",
    consumers=("peft",),
    reads=lora_keys("exclude_modules"),
)
def exclusion_matches_nothing(run: LintContext) -> Iterator[Finding]:
    """A name in `exclude_modules` that takes no target of LoRA out."""
    if run.model is None:
        return
    architecture = run.model.architecture
    for lora in adapters(run):
        at = lora.place("exclude_modules")
        if at is None or not isinstance(at.value, list):
            continue
        named = [each for each in lora.excluded if is_plain(each)]
        lost = unmatched(architecture, named)
        if not lost:
            continue
        blocks = [each for each in lost if each.rpartition(".")[2] in parts(architecture)]
        why = (
            f"{quoted(blocks, 'and')} is a block: layers inside it have names of their own"
            if blocks
            else "no module has a name that ends so"
        )
        yield Finding(
            f"{quoted(lost, 'and')} in exclude_modules takes nothing out",
            (at.label("matches no layer"),),
            (why, "a list is compared with the end of a name, a text is an expression"),
            f'write "{".*" + blocks[0] + ".*"}" without the list' if blocks else "remove it",
        )


@rule(
    "parameter-targets-match-nothing",
    "error",
    "init",
    consumers=("peft>=0.17",),
    reads=lora_keys("target_parameters"),
)
def parameter_targets_match_nothing(run: LintContext) -> Iterator[Finding]:
    """Parameters are to be adapted that the model does not have."""
    if run.model is None:
        return
    names = parts(run.model.architecture)
    for lora in loras(run):
        at = lora.place("target_parameters")
        if at is None or not isinstance(at.value, list):
            continue
        asked = [each for each in at.value if isinstance(each, str) and is_plain(each)]
        lost = [each for each in asked if not set(each.split(".")[:-1]) & names and "." in each]
        if lost and len(lost) == len(at.value) and not lora.value("target_modules"):
            yield Finding(
                f"{quoted(lost, 'and')} of target_parameters is no parameter of {run.model.path}",
                (at.label("matches nothing"),),
                ("PEFT refuses adapters that reach nothing",),
                "write the name of a parameter of this architecture",
            )
