"""resolve_model: which weights, and what is known of their modules."""

from tunec.compiler.facts import Facts, ResolvedModel
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, model, spec


def resolve_model(facts: Facts, _: Draft) -> Outcome:
    """Say what is trained: the weights that the spec names, and the modules that a config gives."""
    scribe = Scribe(facts)
    resolved = facts.model
    architecture = resolved.architecture
    said = _config_of(resolved)
    config = model("config")
    scribe.say("model.path", resolved.path, _whence(resolved), spec("model"))
    scribe.say("model.family", architecture.family, f"{said} says so", config)
    scribe.say("model.kind", architecture.kind, "follows from its family", config)
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
    return scribe.outcome()


def _whence(resolved: ResolvedModel) -> str:
    """Why the weights lie where they do; those of a card's short name are where the card says."""
    card = resolved.card
    if card is None or resolved.path != card.repo:
        return "as the spec names it"
    return f"as the spec names it: the weights of {card.name}"


def _config_of(resolved: ResolvedModel) -> str:
    """Whose config it is that the modules are known by."""
    card = resolved.card
    if card is None or card.repo.lower() == resolved.path.lower():
        return "its config"
    return f"the catalogue's config of {card.name} ({card.repo})"
