"""Reports experts without adapters or quantisation, and adapters on experts that PEFT refuses."""

from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.architecture import expert_targets, is_moved
from tunec.compiler.analyses.memory.modules import FUSED_EXPERTS, is_stack
from tunec.compiler.analyses.trainable import adapted_modules
from tunec.compiler.passes.contract import Scribe
from tunec.schemas.models.architecture import Module
from tunec.schemas.spec import Lora
from tunec.schemas.units import format_bytes

_16_BIT: Final = 2


def report_experts(scribe: Scribe, lora: Lora, at: str) -> None:
    """Report experts that are neither adapted nor quantised, and adapters that PEFT cannot place.

    Transformers 5 holds all experts of a layer in two tensors, which are not linear layers. In
    earlier releases each expert has linear layers of its own.
    """
    stacks = _fused(scribe)
    if not stacks:
        return
    targets = scribe.facts.pinned("adapter.targets", scribe.values["adapter.targets"])
    reached = any(map(is_stack, adapted_modules(scribe.facts.model.architecture, targets)))
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
    names = expert_targets(architecture)
    note = "transformers 5 holds them in tensors, which are no linear layers"
    beside = "PEFT takes the names of dense and shared feed-forwards for those of routed experts"
    scribe.report(
        "experts-unadapted",
        "note",
        f"the routed experts, {experts / architecture.parameters:.0%} of the model, get no adapter",
        at,
        notes=(note, *((beside,) if moved else ())),
        help=f"add {', '.join(names)} to the targets to adapt every expert" if names else None,
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
