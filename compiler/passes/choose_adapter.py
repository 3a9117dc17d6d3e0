"""choose_adapter: which parameters are trained: adapters, whole modules, or the whole model."""

import json
import re
from shlex import quote
from typing import Final, get_args

from tunec.compiler.analyses.architecture import (
    HalfTarget,
    half_target,
    is_moved,
    is_refused,
    takes_no_adapter,
)
from tunec.compiler.analyses.architecture.expressions import compiled
from tunec.compiler.analyses.trainable import (
    adapted_modules,
    modules_to_save,
    name_modules,
    trainable_parameters,
)
from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft, build_group
from tunec.compiler.ir.slots import Adapter
from tunec.compiler.passes.adapted_experts import (
    report_experts,
    say_expert_parameters,
    with_experts,
)
from tunec.compiler.passes.contract import Outcome, Scribe, model, slot, spec
from tunec.compiler.passes.quantized_base import refuse_trained_in_full
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Architecture, Module
from tunec.schemas.spec import Lora
from tunec.schemas.terms import FreezablePart

_ATTENTION = re.compile(r"attn|[aA]ttention(?!s\.)|\bmixer\.[qkvo]_proj$")
"""A UNet's `attentions` hold their feed-forward as well (diffusers 0.42.1 unet_2d_blocks.py); a
layer of Nemotron H has one `mixer`, whatever it is (transformers 5.23.0 models/nemotron_h)."""
_STATE_SPACE = re.compile(r"\b(mamba|conv)\.|\bmixer\.(in|out)_proj$")
"""Modules that mix tokens without attention: state space and convolution layers."""
_NOT_ADAPTED = re.compile(r"\b(router(\.(proj|layer))?|gate|shared_expert_gate)$")
"""Routers choose experts; adapting one changes which experts a token meets."""


def choose_adapter(facts: Facts, _: Draft) -> Outcome:
    """Decide which parameters are trained, from the method and the model's module tree."""
    scribe = Scribe(facts)
    method = facts.spec.method
    lora = method.lora or method.qlora or method.int8_lora
    if lora is None:
        _no_adapter(scribe)
    else:
        _lora(scribe, lora, facts.spec.method.name)
    _count(scribe)
    return scribe.outcome()


def _no_adapter(scribe: Scribe) -> None:
    full = scribe.facts.spec.method.full
    why = "the method trains the model itself"
    nothing = {
        "rank": 0,
        "alpha": 0.0,
        "dropout": 0.0,
        "targets": (),
        "parameters": (),
        "also_train": (),
    }
    scribe.say("adapter.kind", "none", why, spec("method"))
    for name, value in nothing.items():
        scribe.say(f"adapter.{name}", value, why, spec("method"))
    scribe.say("adapter.bias", "none", why, spec("method"))
    scribe.say("adapter.rslora", False, why, spec("method"))
    scribe.say("adapter.dora", False, why, spec("method"))
    scribe.say("adapter.merge", "never", why, spec("method"))
    frozen = _parts_there(scribe, full.freeze if full else ())
    told = "the spec freezes these" if frozen else "the spec freezes nothing"
    scribe.say("adapter.frozen", frozen, told, spec("method.full.freeze"))


def _parts_there(scribe: Scribe, asked: tuple[str, ...]) -> tuple[str, ...]:
    """The parts to freeze that the model has, in one order; reports an error for one it lacks."""
    has = {"embeddings", *(module.part for module in scribe.facts.model.architecture.modules)}
    absent = [each for each in asked if each not in has]
    if absent:
        scribe.error(
            "E0802",
            f"method.full.freeze does not fit this model: it has no {' and no '.join(absent)} part",
            "method.full.freeze",
            help=f"remove {' and '.join(absent)} from it",
        )
    return tuple(each for each in get_args(FreezablePart) if each in asked and each in has)


def _lora(scribe: Scribe, lora: Lora, name: str) -> None:
    at = f"method.{name}"
    scribe.say("adapter.kind", "lora", "the method trains adapters", spec(at))
    rank = scribe.say("adapter.rank", lora.rank, "as the method says", spec(f"{at}.rank"))
    alpha = float(2 * rank) if lora.alpha is None else lora.alpha
    why = "not given: twice the rank, as usual" if lora.alpha is None else "as the method says"
    scribe.say("adapter.alpha", alpha, why, spec(f"{at}.alpha"), slot("adapter.rank"))
    scribe.say("adapter.dropout", lora.dropout, "as the method says", spec(f"{at}.dropout"))
    _targets(scribe, lora, at)
    say_expert_parameters(scribe, lora, at)
    report_experts(scribe, lora, at)
    scribe.say("adapter.bias", "none", "adapters leave biases alone", spec(at))
    scribe.say("adapter.rslora", lora.rslora, "as the method says", spec(f"{at}.rslora"))
    scribe.say("adapter.dora", lora.dora, "as the method says", spec(f"{at}.dora"))
    why = _why_merged(lora, name) if lora.merge else "not given: adapters stay in separate files"
    scribe.say("adapter.merge", lora.merge or "never", why, spec(f"{at}.merge"))
    _also_train(scribe, lora, at)
    scribe.say("adapter.frozen", (), "adapters freeze the whole base", spec(at))


def _why_merged(lora: Lora, name: str) -> str:
    """The reason for a merge; peft 0.21 `tuners/lora/bnb.py` quantises the sum again, and warns."""
    if lora.merge == "device" and name != "lora":
        return "as the method says; the merged weights are quantised again, with rounding"
    return "as the method says"


def _targets(scribe: Scribe, lora: Lora, at: str) -> None:
    architecture = scribe.facts.model.architecture
    asked = _asked_targets(scribe, lora)
    if asked in ("attention", "mlp", "all-linear"):
        targets = _names(architecture, asked, vision=lora.vision)
        where = " and its tower" if lora.vision else ""
        why = f"{asked} linear modules of the {_adapted_part(scribe)}{where}, by the module tree"
    else:
        given = "targets" in lora.model_fields_set
        targets, why = asked, "as the method says" if given else "the family's own, by the card"
    targets = with_experts(scribe, lora, targets, at)
    targets = scribe.say("adapter.targets", targets, why, spec(f"{at}.targets"), model("config"))
    _check_targets(scribe, targets, scribe.place("adapter.targets", f"{at}.targets"))


@cached(512)
def _names(architecture: Architecture, asked: str, *, vision: bool) -> str | tuple[str, ...]:
    every = (m for m in architecture.modules if _belongs(m, asked, vision=vision))
    wanted = tuple(
        module
        for module in every
        if not is_moved(architecture, module) and not takes_no_adapter(architecture, module)
    )
    return name_modules(architecture, wanted) if wanted else ()


def _asked_targets(scribe: Scribe, lora: Lora) -> str | tuple[str, ...]:
    """The method's targets; by default every linear module, or only attention for diffusion models.

    The default of diffusers and SimpleTuner for LoRA is `to_k, to_q, to_v, to_out.0`. For a derived
    denoiser the catalogue names those of its class.
    """
    model = scribe.facts.model
    if model.architecture.kind != "diffusion" or "targets" in lora.model_fields_set:
        return lora.targets
    if model.architecture.denoiser is not None:
        return model.lora_targets or "attention"
    return "attention"


def _adapted_part(scribe: Scribe) -> str:
    diffusion = scribe.facts.model.architecture.kind == "diffusion"
    return "denoiser" if diffusion else "language model"


def _belongs(module: Module, asked: str, *, vision: bool) -> bool:
    parts = ("text", "denoiser", "vision") if vision else ("text", "denoiser")
    if module.kind != "linear" or module.part not in parts or "{}" not in module.path:
        return False
    if _NOT_ADAPTED.search(module.path):
        return False
    if asked == "all-linear":
        return True
    is_attention = bool(_ATTENTION.search(module.path))
    is_apart = not is_attention and not _STATE_SPACE.search(module.path)
    return is_attention if asked == "attention" else is_apart


def _check_targets(scribe: Scribe, targets: str | tuple[str, ...], at: str) -> None:
    architecture = scribe.facts.model.architecture
    if not targets:
        scribe.error(
            "E0605",
            "adapters need target modules, and none are named",
            at,
            help=f"{_everywhere(scribe, at)}, or name modules",
        )
        return
    if _is_unusable(scribe, targets, at):
        return
    missing = _unmatched(scribe, targets)
    if missing:
        known = sorted(
            {m.path.rpartition(".")[2] for m in architecture.modules if m.kind == "linear"}
        )
        scribe.error(
            "E0605",
            f"{scribe.facts.model.path} has no module named {', '.join(map(repr, missing))}",
            at,
            help=f"{_everywhere(scribe, at)}, or name some of {', '.join(known[:12])}",
        )
        return
    refused = _refused(architecture, targets)
    if refused:
        scribe.error(
            "E0605",
            f"PEFT refuses to adapt {' and '.join(refused)} of {architecture.family}",
            at,
            help=f"{_everywhere(scribe, at)} names the others",
            notes=(
                "a kernel reads these weights itself, or the layer answers with several tensors",
            ),
        )
        return
    half = _half(architecture, targets)
    if half is not None:
        scribe.error(
            "E0605",
            f"{half.target} is adapted only together with {', '.join(half.others)}",
            at,
            help=f"name {', '.join(half.others)} as well",
            notes=(
                f"transformers 5 holds them in one tensor, {half.fused}, and PEFT refuses half",
            ),
        )
        return
    reached = {module.part for module in adapted_modules(architecture, targets)}
    if "vision" in reached and "text" in reached and not _wants_vision(scribe):
        scribe.report(
            "lora-reaches-vision",
            "warning",
            "these targets also match modules of the vision tower",
            at,
            help="use `targets: attention`, or a regular expression over whole module paths",
        )


def _is_unusable(scribe: Scribe, targets: str | tuple[str, ...], at: str) -> bool:
    """Whether a string is not a regular expression that can be matched safely; reports an error."""
    if not isinstance(targets, str):
        return False
    try:
        compiled(targets)
    except re.error as fault:
        scribe.error(
            "E0605",
            f"{targets!r} cannot be matched against names of modules: {fault}",
            at,
            help=f"{_everywhere(scribe, at)}, or list the names",
            notes=("a string is a regular expression over whole module paths",),
        )
        return True
    return False


def _refused(architecture: Architecture, targets: str | tuple[str, ...]) -> list[str]:
    """The last parts of target names for which PEFT raises an error."""
    every = adapted_modules(architecture, targets)
    return sorted({m.path.rpartition(".")[2] for m in every if is_refused(architecture, m)})


def _half(architecture: Architecture, targets: str | tuple[str, ...]) -> HalfTarget | None:
    try:
        return half_target(architecture, targets)
    except re.error:
        return None


def _everywhere(scribe: Scribe, at: str) -> str:
    """The argument that puts adapters on every linear module; a pin lists the module names."""
    if not at.startswith("pin."):
        return f"`--set {at}=all-linear`"
    names = _names(scribe.facts.model.architecture, "all-linear", vision=_wants_vision(scribe))
    return f"`--set {quote(f'{at}={json.dumps(names)}')}`"


def _wants_vision(scribe: Scribe) -> bool:
    method = scribe.facts.spec.method
    lora = method.lora or method.qlora or method.int8_lora
    return lora is not None and lora.vision


def _unmatched(scribe: Scribe, targets: str | tuple[str, ...]) -> list[str]:
    architecture = scribe.facts.model.architecture
    each = (targets,) if isinstance(targets, str) else targets
    if isinstance(targets, str):
        return [] if adapted_modules(architecture, targets) else [targets]
    return [
        name
        for name in each
        if not (adapted_modules(architecture, (name,)) or half_target(architecture, (name,)))
    ]


def _also_train(scribe: Scribe, lora: Lora, at: str) -> None:
    names, why = _extras(scribe, lora)
    names = scribe.say("adapter.also_train", names, why, spec(f"{at}.also_train"))
    architecture = scribe.facts.model.architecture
    absent = [name for name in names if not modules_to_save(architecture, (name,))]
    head = f".{architecture.head}" if architecture.tied else ""
    tied = [name for name in absent if head.endswith(f".{name}")]
    if tied:
        _refuse_tied(scribe, tied[0], at)
    if unknown := [name for name in absent if name not in tied]:
        scribe.error(
            "E0605",
            f"{scribe.facts.model.path} has no module named {', '.join(map(repr, unknown))}",
            (place := scribe.place("adapter.also_train", f"{at}.also_train")),
            help=f"`--set {place}=[]`, or name it by the end of its path: `lm_head`",
        )
    refuse_trained_in_full(scribe, names, at)


def _refuse_tied(scribe: Scribe, name: str, at: str) -> None:
    """Report an error for a head without a weight of its own, of which PEFT would train a copy."""
    end = scribe.facts.model.architecture.embedding.rpartition(".")[2]
    scribe.error(
        "E0605",
        f"{name} of {scribe.facts.model.path} has no weight of its own: it shares that of {end} "
        "(`tie_word_embeddings`)",
        (place := scribe.place("adapter.also_train", f"{at}.also_train")),
        notes=("PEFT would train a copy, which comes apart from the embedding",),
        help=f"`--set {place}=[]`",
    )


_ADDED: Final = ("classifier", "score")
"""Heads that PEFT trains beside adapters in any case: peft 0.10.0 to 0.21.2 peft_model.py
`PeftModelForSequenceClassification.__init__`, `PeftModelForTokenClassification.__init__`."""


def _extras(scribe: Scribe, lora: Lora) -> tuple[tuple[str, ...], str]:
    new = scribe.facts.model.architecture.new
    if lora.also_train is not None:
        added = [each for each in new if each in _ADDED and each not in lora.also_train]
        why = "as the method says" + (", with the head, which PEFT adds" if added else "")
        return (*lora.also_train, *added), why
    if new:
        # PEFT adds `classifier` and `score` itself: a module inside of one would be copied twice
        whole = dict.fromkeys(name.partition(".")[0] for name in new)
        return tuple(whole), "no published weights fill the head"
    card = scribe.facts.model.card
    extras = card.trainer_extras if card else ()
    if not extras:
        return (), "the model's own trainer trains nothing else"
    kept = tuple(name for name in extras if lora.vision or not _is_tower(scribe, name))
    return kept, "the model's own trainer trains these in full beside LoRA"


def _is_tower(scribe: Scribe, name: str) -> bool:
    modules = modules_to_save(scribe.facts.model.architecture, (name,))
    return bool(modules) and all(module.part == "vision" for module in modules)


def _count(scribe: Scribe) -> None:
    values = {path: scribe.facts.pinned(path, value) for path, value in scribe.values.items()}
    adapter: Adapter = build_group("adapter", {**values, "adapter.trainable_parameters": 0})
    count = trainable_parameters(scribe.facts.model.architecture, adapter)
    if adapter.frozen and not count:
        scribe.error(
            "E0802",
            "method.full.freeze leaves nothing of this model to train",
            "method.full.freeze",
            help="remove a part from it",
        )
    scribe.say(
        "adapter.trainable_parameters",
        count,
        "total over the modules that have adapters or are trained in full",
        slot("adapter.targets"),
        slot("adapter.rank"),
        slot("adapter.also_train"),
    )
