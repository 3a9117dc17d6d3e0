"""Which modules an adapter's targets match, and how many parameters LoRA adds to them.

The rules are PEFT's: 0.21.2, `tuners/tuners_utils.py`, `check_target_module_exists` and
`_maybe_include_all_linear_layers`; for experts that transformers 5 fuses,
`utils/transformers_weight_conversion.py`, `_convert_peft_config_moe`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tunec.compiler.analyses.architecture.expressions import compiled
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Architecture, Kind, Module

ALL_LINEAR: Final = "all-linear"
_LINEAR: Final[frozenset[Kind]] = frozenset({"linear", "router"})
"""Kinds of modules whose classes are linear layers: these are what all-linear means."""
_ADAPTABLE: Final[frozenset[Kind]] = _LINEAR | {"embedding", "conv"}

_QWEN_EXPERTS: Final[Mapping[str, str]] = {
    "gate": "gate.weight",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
    "down_proj": "down_proj",
}
_MIXTRAL_EXPERTS: Final[Mapping[str, str]] = {
    "gate": "gate.weight",
    "w1": "gate_up_proj",
    "w3": "gate_up_proj",
    "w2": "down_proj",
}
_NAMED_AS_QWENS: Final = [
    "afmoe",
    "beam",
    "cohere2_moe",
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "dots1",
    "ernie4_5_moe",
    "exaone_moe",
    "flex_olmo",
    "glm4_moe",
    "glm4_moe_lite",
    "glm4v_moe",
    "glm_moe_dsa",
    "hunyuan_v1_moe",
    "longcat_flash",
    "mellum",
    "olmoe",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_omni_moe_thinker",
    "solar_open",
]
"""Families with Qwen's names of experts (transformers 5.23 `conversion_mapping.py`,
`_MODEL_TO_CONVERSION_PATTERN`), of those that have a language model's head."""
_FUSED_EXPERTS: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(("mixtral", "minimax", "minimax_m2"), _MIXTRAL_EXPERTS),
    **dict.fromkeys(_NAMED_AS_QWENS, _QWEN_EXPERTS),
}
"""Targets of transformers 4 that PEFT moves to fused parameters (`_MOE_TARGET_MODULE_MAPPING`)."""
_FUSED: Final = "gate_up_proj"
"""The parameter that fuses two projections: its adapter has twice the rank."""
_UNDECLARED_HEADS: Final = frozenset({"transformer.output_layer"})
"""Heads that their class does not declare as output embedding, so that all-linear includes them."""

_STATE_SPACES: Final = frozenset({"falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h"})
_FUSED_KERNELS: Final = frozenset({"out_proj", "conv1d"})
"""What PEFT refuses to adapt, and in which families: a state space's kernel reads these weights
itself (`tuners/tuners_utils.py`, `_check_lora_target_modules_mamba`)."""
_UNCHECKED_STATE_SPACES: Final = frozenset({"bamba", "granitemoehybrid", "mamba2", "zamba2"})
"""Families whose kernel reads `out_proj` itself (transformers 5.23.0 modeling files,
`outproj_weight=self.out_proj.weight`), of which some are not on PEFT's list."""

Match = Callable[[str], bool]


class HalfTarget(ValueError):
    """Targets that name only one of two projections fused by transformers 5, which PEFT refuses."""

    def __init__(self, target: str, others: Sequence[str], fused: str) -> None:
        self.target = target
        self.others = tuple(others)
        self.fused = fused
        needed = ", ".join(others)
        super().__init__(f"{target} needs {needed} among the targets: both are part of {fused}")


def matching(
    architecture: Architecture, targets: str | Sequence[str], exclude: Sequence[str] = ()
) -> tuple[Module, ...]:
    """Find the modules that PEFT adapts for `target_modules`.

    A list matches a module of that name or whose dotted name ends in it, a string is a regular
    expression over the whole name, which stands for last parts where experts were fused, and
    `all-linear` takes every linear layer but the output projection: the vision tower's too.
    `exclude` is a list of `exclude_modules`. Where only some copies of a module match, the module
    that is given back has those copies alone. Expert projections that transformers 5 fuses come
    back as parameters. A tied output projection that matches is listed too: its adapter is its own.
    """
    if isinstance(targets, str):
        if targets.lower() == ALL_LINEAR:
            return _all_linear(architecture, exclude)
        pattern = compiled(targets)
        if architecture.family in _FUSED_EXPERTS:
            targets = _leaves(architecture, pattern)
        else:
            return _found(architecture, lambda name: pattern.fullmatch(name) is not None, exclude)
    moved = _FUSED_EXPERTS.get(architecture.family, {})
    _check_fused({_last(target) for target in targets}, moved)
    parameters = {moved[_last(target)] for target in targets if _last(target) in moved}
    kept = tuple(target for target in targets if _last(target) not in moved)
    found = _found(architecture, lambda name: _ends(name, kept), exclude)
    return found + _parameters(architecture, tuple(parameters))


def is_moved(architecture: Architecture, module: Module) -> bool:
    """Whether PEFT takes the last part of a module's name for routed experts, or a router.

    Such a module cannot be a target: its name is removed, and the experts are adapted instead.
    """
    return _last(module.path) in _FUSED_EXPERTS.get(architecture.family, {})


def is_refused(architecture: Architecture, module: Module) -> bool:
    """Whether PEFT raises an error if a module is a target.

    If a router returns several tensors, PEFT's layer reads the dtype of the result in the first
    step (`tuners/lora/layer.py`, `Linear.forward`).
    """
    if module.kind == "router":
        return True
    return architecture.family in _STATE_SPACES and _last(module.path) in _FUSED_KERNELS


def takes_no_adapter(architecture: Architecture, module: Module) -> bool:
    """Whether PEFT refuses a layer, or a kernel reads its weights itself if it is installed.

    The kernel does not call the layer, so an adapter on it gets no gradients, and DDP fails.
    """
    return is_refused(architecture, module) or _is_bypassed(architecture, module)


def _is_bypassed(architecture: Architecture, module: Module) -> bool:
    is_projection = _last(module.path) == "out_proj" and module.kind == "linear"
    return is_projection and architecture.family in _UNCHECKED_STATE_SPACES


def expert_targets(architecture: Architecture) -> tuple[str, ...]:
    """Names that PEFT takes for all routed experts of a layer; empty if a family has none."""
    moved = _FUSED_EXPERTS.get(architecture.family, {})
    return tuple(name for name in moved if name != "gate")


def half_target(architecture: Architecture, targets: str | Sequence[str]) -> HalfTarget | None:
    """The targets that PEFT refuses: one of two fused projections. None if there are none."""
    try:
        matching(architecture, targets)
    except HalfTarget as fault:
        return fault
    return None


def _leaves(architecture: Architecture, pattern: re.Pattern[str]) -> tuple[str, ...]:
    """The last parts of module names that PEFT derives from a regular expression.

    Since 0.20 (`_resolve_string_target_modules`): a name that matches in one place counts
    everywhere, and a fused projection is matched by its older name. In 0.19 a string became a set
    of its letters, and nothing matched.
    """
    moved = _FUSED_EXPERTS[architecture.family]
    names = [m.path.format(*place) for m in architecture.modules for place in m.places()]
    owners = {name.rpartition(".")[0] for name in names}
    found = {_last(name) for name in (*names, *owners) if pattern.fullmatch(name)}
    for old, new in moved.items():
        holders = {name.rpartition(".")[0] for name in names if _last(name) == new}
        if any(pattern.fullmatch(f"{holder}.{old}") for holder in holders):
            found.add(old)
    return tuple(sorted(found))


def parameters_named(architecture: Architecture, names: Sequence[str]) -> tuple[Module, ...]:
    """The parameters that PEFT adapts for `target_parameters`: those whose path ends in a name.

    0.21.2 `tuners/tuners_utils.py`, `BaseTuner._inject_parameters`.
    """
    there = (module for module in architecture.modules if module.kind == "parameter")
    return tuple(module for module in there if _ends(module.path, names))


def expert_parameters(architecture: Architecture) -> tuple[str, ...]:
    """Names of the parameters that hold a layer's routed experts, for `target_parameters`."""
    stacks = [m for m in architecture.modules if m.kind == "parameter" and len(m.shape) == 3]
    paths = (module.path for module in stacks if ".experts." in module.path)
    return tuple(dict.fromkeys(".".join(path.split(".")[-2:]) for path in paths))


def rank_factor(architecture: Architecture, module: Module) -> int:
    """How often the rank an expert's adapter has: twice if PEFT moved two targets to one tensor.

    A parameter that `target_parameters` names has the rank itself.
    """
    is_fused = module.kind == "parameter" and module.path.endswith(_FUSED)
    return 2 if is_fused and architecture.family in _FUSED_EXPERTS else 1


def lora_parameters(
    architecture: Architecture, modules: Iterable[Module], rank: int, pieces: int = 1
) -> int:
    """Count the parameters that LoRA of this rank adds to the modules.

    `pieces` is the number of parts into which a `query_key_value` projection is split, each with
    its own pair of matrices: 1 in PEFT, 3 in SwissArmyTransformer (`LoraMixin`).
    """
    return sum(
        _pair(module, rank * rank_factor(architecture, module), pieces) * module.copies
        for module in modules
    )


def _check_fused(named: set[str], moved: Mapping[str, str]) -> None:
    parts = [target for target, fused in moved.items() if fused == _FUSED]
    missing = [part for part in parts if part not in named]
    present = [part for part in parts if part in named]
    if present and missing:
        raise HalfTarget(present[0], missing, _FUSED)


def _pair(module: Module, rank: int, pieces: int) -> int:
    first, *rest = module.shape
    if module.kind == "parameter" and len(rest) == 2:
        return rank * first * sum(rest)
    inputs = 1
    for side in rest:
        inputs *= side
    cut = pieces if module.path.endswith("query_key_value") else 1
    return rank * (first + cut * inputs)


def _all_linear(architecture: Architecture, exclude: Sequence[str]) -> tuple[Module, ...]:
    head = architecture.head
    hidden = () if head in _UNDECLARED_HEADS else (head,)
    linear = tuple(
        module
        for module in architecture.modules
        if module.kind in _LINEAR and module.path not in hidden
    )
    moved = _FUSED_EXPERTS.get(architecture.family, {})
    if not moved:
        return _without(linear, exclude)
    # PEFT turns the names into their last parts here, which convolutions may have too
    # (`_resolve_string_target_modules`), and moves those of experts away.
    names = tuple({_last(module.path) for module in linear} - moved.keys())
    found = _found(architecture, lambda name: _ends(name, names), exclude)
    return found + _parameters(architecture, tuple(set(moved.values())))


def _without(modules: Iterable[Module], exclude: Sequence[str]) -> tuple[Module, ...]:
    if not exclude:
        return tuple(modules)
    chosen = (_copies(module, lambda name: not _ends(name, exclude)) for module in modules)
    return tuple(module for group in chosen for module in group)


def _found(
    architecture: Architecture, matches: Match, exclude: Sequence[str]
) -> tuple[Module, ...]:
    adaptable = [module for module in architecture.modules if module.kind in _ADAPTABLE]
    head = _tied_head(architecture)
    chosen = (
        _copies(module, lambda name: matches(name) and not _ends(name, exclude))
        for module in (*adaptable, *head)
    )
    return tuple(module for group in chosen for module in group)


def _tied_head(architecture: Architecture) -> tuple[Module, ...]:
    if not (architecture.tied and architecture.head):
        return ()
    shape = (architecture.vocab, architecture.hidden)
    return (Module(architecture.head, "linear", shape, "text"),)


def _copies(module: Module, matches: Match) -> tuple[Module, ...]:
    """Keep the copies whose own name matches: all in one module, or one module each."""
    places = list(module.places())
    kept = [place for place in places if matches(module.path.format(*place))]
    if len(kept) == len(places):
        return (module,)
    if len(module.indices) == 1 and kept:
        positions = tuple(place[0] for place in kept)
        return (replace(module, copies=len(kept), indices=(positions,)),)
    return tuple(
        replace(module, copies=1, indices=tuple((index,) for index in place)) for place in kept
    )


def _parameters(architecture: Architecture, names: Sequence[str]) -> tuple[Module, ...]:
    """Parameters of these names; a linear layer's weight is one, as AFMoE's router has it."""
    return tuple(
        module
        for module in architecture.modules
        if (module.kind == "parameter" and _ends(module.path, names))
        or (module.kind == "linear" and _ends(f"{module.path}.weight", names))
    )


def _ends(name: str, targets: Sequence[str]) -> bool:
    return any(name == target or name.endswith(f".{target}") for target in targets)


def _last(name: str) -> str:
    return name.rpartition(".")[2]
