"""resolve_model: which weights are trained, and their modules."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.facts import Facts, ResolvedModel
from tunec.compiler.ir.ledger import Origin
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, model, spec
from tunec.compiler.releases import parsed
from tunec.schemas.models.architecture import Architecture
from tunec.schemas.models.known_since import known_since, whole_heads_since
from tunec.schemas.models.published_form import TITLES
from tunec.schemas.objective_facts import OBJECTIVES
from tunec.schemas.spec import Spec
from tunec.schemas.units import format_bytes

_16_BIT: Final = 2
_EXPANDED: Final = (
    "transformers expands them as it loads them, on devices that lack the form or on "
    "request; what it keeps, its Trainer does not train in full"
)

_DECAY: Final = "A_log"
"""A parameter that every recurrent layer has: the decay of its state."""
_STATE_SPACE: Final = ("the state space", "mamba-ssm")
_RECURRENT: Final = {"linear_attn": ("linear attention", "flash-linear-attention")}
"""The display name and the kernel package of each kind of module (transformers 5.23.0
`integrations/hub_kernels.py`, `use_kernel_func_from_hub_with_fallback`)."""
_IN_TORCH: Final = (
    "the account of memory counts those operations, which keep more than the kernels do"
)


def resolve_model(facts: Facts, _: Draft) -> Outcome:
    """Decide what is trained: the weights that the spec names, and the modules of its config."""
    scribe = Scribe(facts)
    resolved = facts.model
    architecture = resolved.architecture
    said = _config_of(resolved)
    config = model("config")
    scribe.say("model.path", resolved.path, _whence(resolved), spec("model"))
    scribe.say("model.family", architecture.family, f"{said} says so", config)
    scribe.say("model.kind", architecture.kind, *_whence_the_head(facts.spec, config))
    scribe.say(
        "model.parameters",
        architecture.parameters,
        f"sum over the module tree that {said} defines",
        config,
    )
    scribe.say(
        "model.trust_remote_code",
        architecture.remote_code,
        "its classes are in its own repository" if architecture.remote_code else "built in",
        config,
    )
    form = resolved.published
    why = "its config names no such form" if form == "none" else f"{said} says so"
    scribe.say("model.published", form, why, config)
    if form != "none":
        _report_expanded(scribe, resolved)
    _refuse_unknown(scribe, architecture)
    _refuse_passed_over(scribe, resolved)
    _refuse_parted_heads(scribe, architecture)
    _report_recurrent(scribe, architecture)
    return scribe.outcome()


def _refuse_unknown(scribe: Scribe, architecture: Architecture) -> None:
    """Report an error if the installed transformers does not have the model's family yet."""
    since, running = known_since(architecture.family), scribe.facts.versions.get("transformers")
    if since is None or running is None or architecture.remote_code:
        return
    if parsed(running) >= parsed(since):
        return
    scribe.error(
        "E0608",
        f"transformers {running} does not have the family {architecture.family}: "
        f"{since} is the first release that does",
        "model",
        notes=(f"transformers {since} models/auto/configuration_auto.py `CONFIG_MAPPING_NAMES`",),
        help=f"`--set 'software={{transformers: \"{since}\"}}'` where the trainer takes it; or "
        "another trainer, or a later release of this one",
    )


def _refuse_passed_over(scribe: Scribe, resolved: ResolvedModel) -> None:
    """Report an error if the installed transformers passes over keys of the model's config."""
    since, running = resolved.read_since, scribe.facts.versions.get("transformers")
    if since is None or running is None or resolved.architecture.remote_code:
        return
    if parsed(running) >= parsed(since):
        return
    scribe.error(
        "E0608",
        f"transformers {running} does not read rope_parameters, by which this model's config says "
        f"how positions are rotated: {since} is the first release that does",
        "model",
        notes=("it would train with the rotation that the model's class has by default",),
        help=f"`--set 'software={{transformers: \"{since}.0\"}}'` where the trainer takes it; or "
        "another trainer, or a later release of this one",
    )


def _refuse_parted_heads(scribe: Scribe, architecture: Architecture) -> None:
    """Report an error if the installed transformers does not take the config's number of heads."""
    family = architecture.family
    since = whole_heads_since(family)
    running = scribe.facts.versions.get("transformers")
    if since is None or running is None or parsed(running) < parsed(since):
        return
    parted = next((s for s in architecture.stacks if s.heads and s.hidden % s.heads), None)
    if parted is None:
        return
    scribe.error(
        "E0608",
        f"transformers {running} refuses this model's config: its hidden size of {parted.hidden} "
        f"is not a multiple of its {parted.heads} attention heads",
        "model",
        notes=(f"transformers {since} and later, `validate_architecture` of {family}'s config",),
        help="`--set 'software={transformers: \"5.3.0\"}'` where the trainer takes it: releases "
        f"before {since} load the model",
    )


def _report_recurrent(scribe: Scribe, architecture: Architecture) -> None:
    """Report recurrent layers, whose fast kernels come in separate packages."""
    kinds = {
        _RECURRENT.get(path.rpartition(".")[2], _STATE_SPACE)
        for path, _, last in (each.path.rpartition(".") for each in architecture.modules)
        if last == _DECAY
    }
    for kind, package in sorted(kinds):
        scribe.report(
            "recurrence-in-torch",
            "note",
            f"{kind} runs as operations of torch unless {package} and causal-conv1d are installed",
            "model",
            notes=(_IN_TORCH,),
        )


def _report_expanded(scribe: Scribe, resolved: ResolvedModel) -> None:
    """Report weights that take more memory than their files, and a 16-bit copy of them."""
    form, path = TITLES[resolved.published], resolved.path
    size = format_bytes(_16_BIT * resolved.architecture.parameters)
    copy = next(iter(_copies(resolved)), None)
    scribe.report(
        "expanded-in-loading",
        "note",
        f"{path} is published in {form}, and trained in 16 bits: {size} of weights",
        "model",
        notes=(_EXPANDED,),
        help=f"`--set model={copy}` is a copy in 16 bits" if copy else None,
    )


def _copies(resolved: ResolvedModel) -> Iterator[str]:
    """Names of repositories that hold the card's weights in 16 bits."""
    card = resolved.card
    own = resolved.path.rpartition("/")[2].lower()
    for name, each in (card.siblings if card else {}).items():
        is_expanded = each.config.get("quantization_config", card) is None
        if is_expanded and name.rpartition("/")[2].lower() == f"{own}-bf16":
            yield name


def _whence_the_head(asked: Spec, config: Origin) -> tuple[str, Origin]:
    if asked.task is not None:
        return "the head that the spec requests", spec("task")
    if OBJECTIVES[asked.objective.kind].scores:
        return f"the head that objective {asked.objective.kind} trains", spec("objective")
    return "follows from its family", config


def _whence(resolved: ResolvedModel) -> str:
    """The reason for the weights' path; a card's short name stands for the card's repository."""
    card = resolved.card
    if card is None or resolved.path != card.repo:
        return "as the spec names it"
    return f"as the spec names it: the weights of {card.name}"


def _config_of(resolved: ResolvedModel) -> str:
    """The config from which the modules are known."""
    card = resolved.card
    if card is None or resolved.path.lower() == card.repo.lower():
        return "its config"
    return f"the catalogue's config of {card.name} ({card.repo})"
