"""Targets of LoRA that the model does not have."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from tunec.compiler.analyses.architecture.lora import is_refused
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, quoted
from tunec.compiler.lints.conditions import is_checked, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Place
from tunec.compiler.lints.facts.lora import (
    ALL_LINEAR,
    Lora,
    adapters,
    is_minicpm,
    is_patched,
    is_plain,
    last,
    lora_keys,
    loras,
)
from tunec.compiler.lints.facts.model import (
    NoRegex,
    adapted,
    family_of,
    leaves,
    parts,
    unmatched,
    usual,
)
from tunec.compiler.lints.rule import Finding, rule

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel


@rule("error", "init", consumers=("peft",), reads=lora_keys("target_modules"))
def lora_target_not_a_layer(run: LintContext) -> Iterator[Finding]:
    """LoRA targets a block, a norm or a wrapped layer, which PEFT cannot adapt."""
    if run.model is None:
        return
    tree = run.model.architecture
    layers = leaves(tree, ("linear", "embedding", "conv", "parameter"))
    for lora in adapters(run):
        at, targets = lora.place("target_modules"), lora.targets
        if at is None or not isinstance(targets, tuple) or is_patched(run, lora):
            continue
        lost = unmatched(tree, targets)
        blocks = [each for each in lost if each in parts(tree) and each not in layers]
        if blocks:
            yield Finding(
                f"{lora.method} cannot be put on {quoted(blocks, 'and')} of {run.model.path}",
                (at.label("a block or a norm, and no linear layer"),),
                ("PEFT adapts linear layers, embeddings and convolutions",),
                "name the linear layers inside",
            )
        elif wrapped := _wrapped(run, lora, targets):
            names = quoted(wrapped, "and")
            yield Finding(
                f"{lora.method} cannot be put on {names} of {run.model.path}",
                (at.label("in its towers, each is a module around a linear layer"),),
                ("PEFT stops at the first module of that name that is no linear layer",),
                "leave these names out: its flag takes no regular expression for one part"
                if lora.document.kind == "openrlhf"
                else rf'write target_modules: ".*language_model.*\.({"|".join(wrapped)})"',
            )
        elif refused := _of_kernels(run, lora, targets):
            since = _CHECKED.get(tree.family, "peft>=0.16")
            yield Finding(
                f"{lora.method} cannot be put on {quoted(refused, 'and')} of {run.model.path}",
                (at.label("refused"),),
                notes(run, "Mamba's kernel reads these weights itself, past an adapter", since),
                f"leave {quoted(refused, 'and')} out of the targets",
                severity=severity(run, since),
            )


_CHECKED: Final[Mapping[str, str]] = {"nemotron_h": "peft>=0.20"}
"""The first release that refuses Mamba's layers, where it is not 0.16: peft 0.15.2 to 0.21.2
tuners/tuners_utils.py `_check_lora_target_modules_mamba`."""


def _of_kernels(run: LintContext, lora: Lora, targets: tuple[str, ...]) -> list[str]:
    """Targets among the layers that PEFT refuses to adapt, since a kernel reads their weights."""
    if run.model is None or lora.excluded:
        return []
    tree = run.model.architecture
    if not is_checked(run, _CHECKED.get(tree.family, "peft>=0.16")):
        return []
    kept = {last(m.path) for m in tree.modules if m.kind != "router" and is_refused(tree, m)}
    return [each for each in targets if last(each) in kept]


_WRAPPER: Final = re.compile(r"Clippable|_register_custom_module|\b(?:import|from)\s+unsloth\b")
"""Scripts that make PEFT accept wrapped layers; unsloth 2026.8.3 models/vision.py does so
itself."""


def _wrapped(run: LintContext, lora: Lora, targets: tuple[str, ...]) -> list[str]:
    """Names that are layers in one part of the model, and wrap a layer in another part.

    peft 0.19.1 to 0.21.2 tuners/lora/model.py `_create_new_module` raises a ValueError at the first
    module whose name ends so and that is not a layer, such as `Gemma4ClippableLinear` (transformers
    5.5.0 to 5.23.0 models/gemma4/modeling_gemma4.py).
    """
    if run.model is None or lora.document.kind not in (*TRL, "peft", "openrlhf") or lora.excluded:
        return []
    if _WRAPPER.search(lora.document.text):
        return []
    paths = {each.path for each in run.model.architecture.modules}
    holders = {path.rpartition(".")[0] for path in paths if path.endswith(".linear")} - paths
    return [each for each in targets if any(at.endswith(f".{each}") for at in holders)]


@rule("error", "init", consumers=("peft",), reads=lora_keys("target_modules"))
def lora_target_string_is_a_regex(run: LintContext) -> Iterator[Finding]:
    """A name is given as a string, which PEFT matches as a regular expression over whole names."""
    for lora in adapters(run):
        at = lora.place("target_modules")
        if at is None or lora.document.kind == "llamafactory":
            continue
        if isinstance(lora.targets, str) and lora.targets.lower() != ALL_LINEAR:
            yield from _as_text(lora, at, lora.targets)
        elif _is_one_of_trl(run, lora):
            yield _one(at, (lora.targets or "")[0])


def _as_text(lora: Lora, at: Place, text: str) -> Iterator[Finding]:
    if not is_plain(text) or "." in text:
        return
    names = [part.strip() for part in text.split(",") if part.strip()]
    flags = lora.document.format == "shell" or lora.document.kind in TRL
    yield Finding(
        f"target_modules is the text {text}, which matches no module",
        (at.label("a regular expression over the whole name"),),
        ("model.layers.0.self_attn.q_proj is not matched by q_proj: only a list matches ends",),
        f"write a list: [{', '.join(names)}]",
        None if flags else Fix((at.replaced(names),), "safe"),
    )


def _is_one_of_trl(run: LintContext, lora: Lora) -> bool:
    names = lora.targets
    is_trl = lora.document.kind in TRL and run.runs("trl>=0.10") is not False
    return is_trl and isinstance(names, tuple) and len(names) == 1 and is_plain(names[0])


def _one(at: Place, name: str) -> Finding:
    return Finding(
        f"a list of one target, {name}, becomes a regular expression that matches no module",
        (at.label("unpacked to a string"),),
        (
            "TRL replaces a list of one by its item, and PEFT matches a string with whole names",
            "so written since trl 0.9 or 0.10; 0.8.6 does it to all-linear only",
        ),
        f"write the expression itself: .*\\.{name}",
        Fix((at.replaced([f".*\\.{name}"]),), "safe"),
    )


@rule("warning", "silent", consumers=("peft",), reads=lora_keys("target_modules"))
def lora_target_unused(run: LintContext) -> Iterator[Finding]:
    """Some of LoRA's targets match no module."""
    if run.model is None:
        return
    tree = run.model.architecture
    for lora in adapters(run):
        at, targets = lora.place("target_modules"), lora.targets
        if at is None or not isinstance(targets, tuple) or not all(map(is_plain, targets)):
            continue
        if is_patched(run, lora):
            continue
        lost = [each for each in unmatched(tree, targets) if each not in parts(tree)]
        if not lost or len(lost) == len(targets):
            continue
        free = [each for each in leaves(tree, ("linear",)) if each not in targets]
        near = dict.fromkeys(name for each in lost for name in _meant(each, free))
        is_scripts = lora.document.format == "python"  # its own list is for several families
        yield Finding(
            f"{quoted(lost, 'and')} of {lora.method}'s targets match no module of {run.model.path}",
            (at.label("partly unused"),),
            ("PEFT reports nothing as long as one of the targets matches",),
            f"did you mean {quoted(near)}?" if near else "remove them",
            severity="note" if is_scripts and (not near or _is_of_a_flag(run)) else None,
        )


_LIKE: Final = 0.6


def _meant(lost: str, free: Iterable[str]) -> list[str]:
    """The layer that a target may stand for: without their common ending, one begins the other.

    So do `out_proj` and `o_proj`, or they differ by a few letters; `gate_proj` is no `v_proj`.
    """
    for each in nearest(lost, free)[:1]:
        pairs = zip(reversed(lost), reversed(each), strict=False)
        ending = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        one, other = sorted((lost[: len(lost) - ending], each[: len(each) - ending]), key=len)
        if other.startswith(one) or SequenceMatcher(None, one, other).ratio() >= _LIKE:
            return [each]
    return []


def _is_of_a_flag(run: LintContext) -> bool:
    """Whether a command or another file names the model, and not the script that has the list."""
    name = run.model_name or ""
    return any(name in each.text for each in run.documents if each.format != "python")


_EVER: Final = frozenset(
    {
        *("t5", "mt5", "bart", "gpt2", "bloom", "blip-2", "opt", "gptj", "gpt_neox", "gpt_neo"),
        *("bert", "roberta", "xlm-roberta", "electra", "deberta-v2", "deberta", "layoutlm"),
        *("llama", "chatglm", "gpt_bigcode", "mpt", "RefinedWeb", "RefinedWebModel", "falcon"),
        *("btlm", "codegen", "mistral", "mixtral", "stablelm", "phi", "gemma"),
    }
)
"""peft 0.10.0 to 0.21.2 utils/constants.py
`TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING`."""
_LATER: Final[Mapping[str, str]] = {
    "qwen2": "peft>=0.12",
    "gemma2": "peft>=0.13",
    **dict.fromkeys(("llama4", "gemma3_text", "qwen3"), "peft>=0.16"),
    **dict.fromkeys(("rwkv", "rwkv7"), "peft>=0.18"),
    "gemma4": "peft>=0.19",
    "nemotron_h": "peft>=0.20",
}
"""Model types that were added to the mapping later, with the release that added each."""
_NAMED: Final[Mapping[str, str]] = {
    r"/qwen2-vl-": "qwen2_vl",
    r"/qwen2\.5-vl-": "qwen2_5_vl",
    r"/qwen3-vl-": "qwen3_vl",
    r"/qwen3-[\d.]+b-a\d+b": "qwen3_moe",
    r"/phi-3(\.5)?-(mini|small|medium)|/phi-4$": "phi3",
    r"/gpt-oss-": "gpt_oss",
    r"/deepseek-v3|/deepseek-r1$": "deepseek_v3",
    r"/gemma-2-\d+b": "gemma2",
    r"/qwen3-[\d.]+b$": "qwen3",
    r"/qwen2(\.5)?-[\d.]+b": "qwen2",
}
"""`model_type` by repository name, for models that are not in the catalogue."""


@rule("error", "init", consumers=("peft",), reads=("trainer:use_peft", "peft:*"))
def lora_targets_left_out(run: LintContext) -> Iterator[Finding]:
    """LoRA's targets are left to PEFT, which has no default for this type of model."""
    for lora in loras(run):
        is_left = _is_left(lora) and not run.own.sets("target_modules")
        kind = _model_type(run, lora) if is_left else None
        at = lora.start()
        if kind is None or at is None or kind in _EVER or _has(run, kind):
            continue
        yield Finding(
            f"no targets for LoRA, and PEFT has none of its own for {kind}",
            (at.label(f"write {lora.key('target_modules')} beside it"),),
            ("ValueError: please specify `target_modules` in `peft_config`",),
            f"write {lora.key('target_modules')}: all-linear",
            severity=None if lora.document.get(lora.key("target_modules")) else "warning",
        )


def _is_left(lora: Lora) -> bool:
    key = lora.key("target_modules")
    has_other = lora.place("target_parameters") is not None
    is_own = lora.document.kind in (*TRL, "peft") and key not in lora.document.unknown
    return is_own and not has_other and lora.targets is None and not is_minicpm(lora.document)


def _model_type(run: LintContext, lora: Lora) -> str | None:
    if run.model is not None and run.model.card is not None:
        found = run.model.card.config.get("model_type")
        return found if isinstance(found, str) else None
    for key in ("model_name_or_path", "base_model_name_or_path"):
        said = lora.document.value(key)
        name = f"/{str(said or '').lower().rpartition('/')[2]}"
        for pattern, kind in _NAMED.items():
            if re.search(pattern, name):
                return kind
    return None


def _has(run: LintContext, kind: str) -> bool:
    """Whether PEFT's release may have default targets for a type of model."""
    since = _LATER.get(kind)
    return since is not None and run.runs(since) is not False


@rule("error", "init", consumers=("peft",), reads=lora_keys("target_modules"))
def lora_targets_match_nothing(run: LintContext) -> Iterator[Finding]:
    """LoRA's targets are names from another architecture."""
    for lora in adapters(run):
        at = lora.place("target_modules")
        if at is not None and (shorthand := _shorthand(run, lora, at)) is not None:
            yield shorthand
        elif (
            at is None
            or lora.targets is None
            or lora.targets == ALL_LINEAR
            or is_patched(run, lora)
            or _is_of_text_encoder(lora)
        ):
            continue
        else:
            tree = _in_tree(run, run.model, lora, at) if run.model else _in_family(run, lora, at)
            yield from tree


_OF_CLIP: Final = frozenset({"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"})
"""transformers 4.40.2 to 5.23.0 models/clip/modeling_clip.py `CLIPAttention`, `CLIPMLP`."""


def _is_of_text_encoder(lora: Lora) -> bool:
    """Whether a script's adapter belongs to the text encoder beside the denoiser."""
    document, targets = lora.document, lora.targets
    is_beside = document.format == "python" and "text_encoder" in document.text
    return is_beside and isinstance(targets, tuple) and _OF_CLIP.issuperset(targets)


def _shorthand(run: LintContext, lora: Lora, at: Place) -> Finding | None:
    """Report `all-linear` where PEFT takes it for a name: in a list, or before PEFT 0.8."""
    if isinstance(lora.targets, tuple) and ALL_LINEAR in lora.targets:
        return Finding(
            f"{ALL_LINEAR} in a list is the name of a module, and none is called so",
            (at.label("matches nothing"),),
            ("PEFT takes it for all linear layers only where it stands alone",),
            f"write {ALL_LINEAR} without the list",
            Fix((at.replaced(ALL_LINEAR),), "unsafe") if lora.document.kind == "peft" else None,
            severity=None if len(lora.targets) == 1 else "warning",
        )
    if lora.targets == ALL_LINEAR and at.value == ALL_LINEAR and run.runs("peft<0.8"):
        return Finding(
            f"{ALL_LINEAR} is a regular expression to PEFT {run.release('peft').version}",
            (at.label("matches nothing"),),
            ("the word came with PEFT 0.8.0",),
            "write the names of the layers, or use PEFT 0.8 and later",
        )
    return None


def _in_tree(run: LintContext, model: "ResolvedModel", lora: Lora, at: Place) -> Iterator[Finding]:
    architecture, targets = model.architecture, lora.targets or ()
    try:
        if adapted(architecture, targets) or lora.value("target_parameters"):
            return
    except NoRegex as fault:
        yield Finding(
            f"the target {targets} is no regular expression: {fault}",
            (at.label("not compiled"),),
            ("a string is taken for a regular expression over whole module names",),
            "fix the expression, or write a list of names",
        )
        return
    if isinstance(targets, str) and is_plain(targets):
        return  # a bare name as a string is a rule of its own
    if not isinstance(targets, str) and not all(map(is_plain, targets)):
        return
    names = usual(architecture)
    yield Finding(
        f"{lora.method}'s targets match no module of {model.path}",
        (at.label("matches nothing"),),
        (f"its layers are called {', '.join(names)}",) if names else (),
        f"write {', '.join(names[:4])}" if names else None,
        # transformers 4.52 renamed modules of models that see: a regex may fit the other names
        certain=not (isinstance(targets, str) and architecture.kind == "vision-language")
        or _has_new_names(run),
    )


def _has_new_names(run: LintContext) -> bool:
    """Whether a named release uses the catalogue's module names; Axolotl 0.10 pins 4.52."""
    return run.runs("transformers>=4.52") is True or run.runs("axolotl>=0.10") is True


def _in_family(run: LintContext, lora: Lora, at: Place) -> Iterator[Finding]:
    path, targets = run.model_name, lora.targets
    known = family_of(path) if path is not None else None
    if known is None or isinstance(targets, str) or targets is None:
        return
    family, layers = known
    if not all(map(is_plain, targets)) or any(last(each) in layers for each in targets):
        return
    yield Finding(
        f"{lora.method}'s targets are no layers of {family}: {', '.join(targets)}",
        (at.label("matches nothing"),),
        (f"by its name {path} is {family}, with the layers {', '.join(sorted(layers))}",),
        "write the names of this architecture, or all-linear",
    )
