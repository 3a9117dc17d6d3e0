"""Reports experts without adapters or quantisation, and adapters on experts that PEFT refuses."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.architecture import (
    expert_parameters,
    expert_targets,
    is_moved,
    parameters_named,
)
from tunec.compiler.analyses.memory.modules import FUSED_EXPERTS, is_stack
from tunec.compiler.analyses.trainable import adapted_modules
from tunec.compiler.passes.contract import Scribe, model, spec
from tunec.schemas.models.architecture import Module
from tunec.schemas.spec import Lora
from tunec.schemas.units import format_bytes

_16_BIT: Final = 2


def with_experts(
    scribe: Scribe, lora: Lora, targets: str | tuple[str, ...], at: str
) -> str | tuple[str, ...]:
    """The targets, with the names that PEFT moves to the routed experts of this family."""
    names = expert_targets(scribe.facts.model.architecture) if lora.experts else ()
    if names and isinstance(targets, str):
        scribe.error(
            "E0605",
            "the targets are a regular expression, to which no names of experts can be added",
            f"{at}.experts",
            help=f"`--set {at}.experts=false`, and let the expression match {', '.join(names)} too",
        )
        return targets
    return (*targets, *(name for name in names if name not in targets)) if names else targets


def say_expert_parameters(scribe: Scribe, lora: Lora, at: str) -> None:
    """Decide which parameters get adapters: the experts that no target reaches by a name."""
    architecture = scribe.facts.model.architecture
    names: tuple[str, ...] = ()
    why = "not asked for: no parameter gets an adapter"
    if lora.experts and expert_targets(architecture):
        why = "the targets reach the experts, by names that PEFT moves to them"
    elif lora.experts:
        names, why = expert_parameters(architecture), "the experts' own, by the module tree"
        _refuse_out_of_reach(scribe, names, f"{at}.experts")
    said = scribe.say("adapter.parameters", names, why, spec(f"{at}.experts"), model("config"))
    absent = [name for name in said if not parameters_named(architecture, (name,))]
    if absent:
        scribe.error(
            "E0605",
            f"{scribe.facts.model.path} has no parameter named {', '.join(map(repr, absent))}",
            scribe.place("adapter.parameters", f"{at}.experts"),
            help=f"`--set {at}.experts=true` names those of its experts",
        )


def _refuse_out_of_reach(scribe: Scribe, names: tuple[str, ...], at: str) -> None:
    """Refuse adapters on experts that the model does not have, or that older programs hold apart.

    PEFT has `target_parameters` from 0.17 on (0.17.0 `tuners/lora/config.py`).
    """
    path, remedy = scribe.facts.model.path, f"`--set {at}=false`"
    if not names:
        scribe.error("E0605", f"{path} has no routed experts to adapt", at, help=remedy)
    for package, least in (("transformers", FUSED_EXPERTS), ("peft", Version("0.17"))):
        version = scribe.facts.versions.get(package)
        if names and version is not None and Version(version) < least:
            why = f"adapters on routed experts need {package} {least}, and {version} will run"
            scribe.error("E0605", why, at, help=remedy)


def report_experts(scribe: Scribe, lora: Lora, at: str) -> None:
    """Report experts that are neither adapted nor quantised, and adapters that PEFT cannot place.

    Transformers 5 holds all experts of a layer in two tensors, which are not linear layers. In
    earlier releases each expert has linear layers of its own.
    """
    stacks = _fused(scribe)
    if not stacks:
        return
    targets, parameters = (
        scribe.facts.pinned(path, scribe.values[path])
        for path in ("adapter.targets", "adapter.parameters")
    )
    adapted = adapted_modules(scribe.facts.model.architecture, targets, parameters)
    reached = any(map(is_stack, adapted))
    if reached:
        _refuse_wrapped(scribe, lora, at)
    elif lora.targets in ("all-linear", "mlp"):
        _report_unadapted(scribe, stacks, f"{at}.targets")
    if scribe.facts.spec.method.lora is None:
        _report_unquantised(scribe, stacks, at)


def _fused(scribe: Scribe) -> tuple[Module, ...]:
    version = scribe.facts.versions.get("transformers")
    if version is not None and Version(version) < FUSED_EXPERTS:
        return ()
    modules = scribe.facts.model.architecture.modules
    return tuple(module for module in modules if is_stack(module) and ".experts" in module.path)


def _refuse_wrapped(scribe: Scribe, lora: Lora, at: str) -> None:
    """PEFT raises ValueError for these (0.21.2 `tuners/lora/layer.py`, `ParamWrapper.__init__`)."""
    wanted = {"dropout": lora.dropout > 0, "dora": lora.dora}
    for name in (name for name, is_set in wanted.items() if is_set):
        scribe.error(
            "E0605",
            f"these targets reach fused experts, whose adapters cannot have {name}",
            f"{at}.{name}",
            help=f"`--set {at}.{name}={'0' if name == 'dropout' else 'false'}`",
            notes=("PEFT refuses to start: lora.ParamWrapper does not work with it",),
        )


def _report_unadapted(scribe: Scribe, stacks: tuple[Module, ...], at: str) -> None:
    architecture = scribe.facts.model.architecture
    experts = sum(module.parameters for module in stacks)
    moved = [m for m in architecture.modules if m.kind == "linear" and is_moved(architecture, m)]
    note = "transformers 5 holds them in tensors, which are no linear layers"
    beside = "PEFT takes the names of dense and shared feed-forwards for those of routed experts"
    scribe.report(
        "experts-unadapted",
        "note",
        f"the routed experts, {experts / architecture.parameters:.0%} of the model, get no adapter",
        at,
        notes=(note, *((beside,) if moved else ())),
        help=f"`--set {at.rpartition('.')[0]}.experts=true` adapts every expert",
    )


def _report_unquantised(scribe: Scribe, stacks: tuple[Module, ...], at: str) -> None:
    experts = sum(module.parameters for module in stacks)
    scribe.report(
        "experts-unquantised",
        "note",
        f"no routed expert is quantised: {format_bytes(_16_BIT * experts)} stay in 16 bit",
        at,
        notes=("transformers 5 holds them in tensors, and bitsandbytes packs linear layers alone",),
    )
