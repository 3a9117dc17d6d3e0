"""Targets written in a form that matches nothing, and targets among fused experts."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tunec.compiler.analyses.architecture.lora import half_target
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.conditions import is_checked, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.facts.launch import starts_one_of
from tunec.compiler.lints.facts.lora import (
    ALL_LINEAR,
    Lora,
    adapters,
    is_plain,
    last,
    lora_keys,
    loras,
)
from tunec.compiler.lints.facts.model import NoRegex, adapted, leaves, parts, unmatched
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.schemas.models.architecture import Architecture, Module


@rule("error", "init", consumers=("peft",), reads=lora_keys("target_modules", "exclude_modules"))
def regex_in_target_list(run: LintContext) -> Iterator[Finding]:
    """A list of LoRA's targets contains a regular expression."""
    for lora in adapters(run):
        if (at := lora.place("target_modules")) is not None:
            yield from list(_no_pattern(run, lora, at)) or _targets(lora, at)
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


_COMPILED: Final = "axolotl>=0.16"
"""axolotl 0.16.0 to 0.19.0 utils/schemas/config.py `check_lora_target_modules_regex`."""


def _no_pattern(run: LintContext, lora: Lora, at: Place) -> Iterator[Finding]:
    """Axolotl compiles each name of the list, though PEFT does not."""
    names = lora.targets if lora.document.kind == "axolotl" else None
    lost = [each for each in names or () if isinstance(names, tuple) and not _compiles(each)]
    if lost and is_checked(run, _COMPILED):
        yield Finding(
            f"{quoted(lost, 'and')} in lora_target_modules is no regular expression",
            (at.label("refused"),),
            notes(run, "Axolotl compiles each name while it reads the file", _COMPILED),
            "write the names of the layers: " + ", ".join(last(each.strip("*.")) for each in lost),
            severity=severity(run, _COMPILED),
            consequence="parse",
        )


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


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
"""Flags that mark scripts which read a string of their own under that key."""
_LISTED: Final = re.compile(r"(?:\A|/)(?:fastchat/train|trl/scripts|examples/scripts)/\w+\.py\Z")
"""Scripts whose key is `List[str]`: lm-sys/FastChat 0e6d3e4 fastchat/train/train_lora.py
`LoraArguments`, QwenLM/Qwen 2df8e8a finetune.py, which has `q_lora` too; trl 0.9.6 to 1.16.0
trainer/model_config.py."""


@rule(
    "error",
    "init",
    consumers=("peft", "trl", "transformers", "axolotl"),
    reads=keys("|".join(_KINDS), *_KEYS),
)
def targets_in_one_word(run: LintContext) -> Iterator[Finding]:
    """Names of layers are joined by commas, but the reader takes the whole string as one name."""
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
    """Whether the reader takes the key as a list; a script may split the string itself."""
    is_known = document.kind != "hf" or document.format != "shell" or "q_lora" in document.found
    return is_known or starts_one_of(run, document, _LISTED)


def _run_together(run: LintContext, at: Place) -> Iterator[Finding]:
    """Report two names without a comma between them, if the model's own names are not known.

    `lora-target-unused` reports them otherwise.
    """
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
    """Split a name into two layer names: two usual ones, or two with a common beginning."""
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
    """The only word of a list, if it has commas.

    A string in a file is a regular expression, which another rule checks.
    """
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


@rule("warning", "silent", consumers=("peft",), reads=lora_keys("exclude_modules"))
def exclusion_matches_nothing(run: LintContext) -> Iterator[Finding]:
    """A name in `exclude_modules` excludes none of LoRA's targets."""
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


@rule("error", "init", consumers=("peft>=0.17",), reads=lora_keys("target_parameters"))
def parameter_targets_match_nothing(run: LintContext) -> Iterator[Finding]:
    """`target_parameters` names parameters that the model does not have."""
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


_PROJECTIONS: Final = frozenset({"gate_proj", "up_proj", "down_proj", "gate_up_proj"})
_OF_EXPERTS: Final = _PROJECTIONS | {"w1", "w2", "w3", "input_linear", "output_linear", "experts"}
_OWN_LISTS: Final = ("axolotl", "llamafactory")
"""Kinds whose trainer lists the names of all `nn.Linear` itself: axolotl 0.19.0 loaders/adapter.py
`find_all_linear_names`; llamafactory 0.9.5 model/model_utils/misc.py `find_all_linear_modules`."""


@rule(
    "warning",
    "silent",
    consumers=("peft", "transformers>=5"),
    reads=(*lora_keys("target_modules"), "axolotl:lora_target_linear"),
)
def experts_without_adapter(run: LintContext) -> Iterator[Finding]:
    """LoRA targets the layers of experts, but these are parameters that it does not reach."""
    experts = () if run.model is None else _stacked(run.model.architecture)
    if run.model is None or not experts or run.runs("transformers>=5") is False:
        return
    names = ", ".join(dict.fromkeys(f"experts.{last(each.path)}" for each in experts))
    for lora in loras(run):
        at = lora.place("target_modules") or lora.document.get("lora_target_linear")
        is_other = lora.document.value("use_kt") is True  # KTransformers' classes of the model
        if at is None or is_other or not _names_experts(lora):
            continue
        if _reaches(run, lora, run.model.architecture):
            continue
        yield Finding(
            f"{lora.method} reaches no routed expert of {run.model.path}",
            (at.label("names layers, and the experts are stacked parameters"),),
            (
                f"since transformers 5 all experts of a layer are in {names}",
                "training continues with the attention, and with shared experts if there are any",
            ),
            f"{_with_parameters(lora, names)}name attention alone",
        )


def _stacked(architecture: "Architecture") -> "tuple[Module, ...]":
    """The parameters that stack one weight per routed expert."""
    stacks = (e for e in architecture.modules if e.kind == "parameter" and len(e.shape) == 3)
    return tuple(each for each in stacks if "experts" in each.path)


def _with_parameters(lora: Lora, names: str) -> str:
    """How a file adapts these parameters, if its reader hands them to PEFT."""
    if not lora.knows("target_parameters"):
        return ""
    since = "PEFT 0.17 and TRL 0.26" if lora.document.kind in TRL else "PEFT 0.17"
    return f"write {lora.key('target_parameters')}: [{names}] ({since} and later), or "


def _names_experts(lora: Lora) -> bool:
    """Whether the targets name layers of experts, and no setting adapts parameters."""
    by_unsloth = lora.document.format == "python" and "unsloth" in lora.document.text
    if lora.place("target_parameters") or by_unsloth or lora.targets is None:
        return False
    if isinstance(lora.targets, str):
        return lora.targets == ALL_LINEAR or any(each in lora.targets for each in _PROJECTIONS)
    return not _OF_EXPERTS.isdisjoint(map(last, lora.targets))


def _reaches(run: LintContext, lora: Lora, architecture: "Architecture") -> bool:
    """Whether PEFT adapts a stack of experts for these targets, or refuses the targets.

    peft 0.19.0 to 0.21.2 utils/transformers_weight_conversion.py `_convert_peft_config_moe`: names
    of transformers 4 become parameters for some families; strings since 0.20.
    """
    targets = lora.targets or ()
    if targets == ALL_LINEAR and lora.document.kind in _OWN_LISTS:
        targets = tuple(sorted(leaves(architecture, ("linear",))))
    since = "peft>=0.20" if isinstance(targets, str) else "peft>=0.19"
    if run.runs(since) is False:
        return False
    try:
        found = adapted(architecture, targets, lora.excluded)
    except NoRegex:
        return True
    is_refused = half_target(architecture, targets) is not None
    return is_refused or any(each in found for each in _stacked(architecture))


@rule(
    "error", "init", consumers=("peft>=0.19", "transformers>=5"), reads=lora_keys("target_modules")
)
def fused_target_in_part(run: LintContext) -> Iterator[Finding]:
    """Only one of two projections is a target, but the experts hold both in one parameter."""
    if run.model is None or run.runs("transformers>=5") is False or run.runs("peft<0.19"):
        return
    for lora in loras(run):
        at, targets = lora.place("target_modules"), lora.targets
        if at is None or not isinstance(targets, tuple):
            continue
        half = half_target(run.model.architecture, targets)
        if half is not None:
            others = quoted(half.others, "and")
            yield Finding(
                f"{half.target} is a target without {others}, and both are in {half.fused}",
                (at.label("refused"),),
                (f"ValueError: cannot convert {half.target} without also targeting {others}",),
                f"name {others} too, or leave {half.target} out",
            )
