"""resolve_model: which model, by the facts of its own config."""

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Outcome, Scribe, model, spec


def resolve_model(facts: Facts, _: Draft) -> Outcome:
    """Say what is trained: the catalogue's card, or the config that the spec names."""
    scribe = Scribe(facts)
    resolved = facts.model
    architecture = resolved.architecture
    scribe.say("model.path", resolved.path, "where its weights are", spec("model"))
    scribe.say("model.family", architecture.family, "its config says so", model("config"))
    scribe.say("model.kind", architecture.kind, "follows from its family", model("config"))
    scribe.say(
        "model.parameters",
        architecture.parameters,
        "sum over the module tree that its config defines",
        model("config"),
    )
    scribe.say(
        "model.trust_remote_code",
        architecture.remote_code,
        "its classes are in its own repository" if architecture.remote_code else "built in",
        model("config"),
    )
    return scribe.outcome()
