"""The modules that get adapters or are trained in full, and their numbers of parameters."""

import re
from collections.abc import Iterable

from tunec.compiler.analyses.architecture import (
    HalfTarget,
    lora_parameters,
    matching,
    parameters_named,
)
from tunec.compiler.ir.slots import Adapter
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Architecture, Module


@cached(512)
def adapted_modules(
    architecture: Architecture, targets: str | tuple[str, ...], parameters: tuple[str, ...] = ()
) -> tuple[Module, ...]:
    """Modules to which PEFT would add an adapter for these targets, and parameters of these names.

    Empty for an empty list, and for targets that PEFT refuses: an invalid regular expression, or
    half of a fused module.
    """
    try:
        found = matching(architecture, targets) if targets else ()
    except (re.error, HalfTarget):
        return ()
    return found + parameters_named(architecture, parameters)


@cached(512)
def modules_to_save(architecture: Architecture, names: tuple[str, ...]) -> tuple[Module, ...]:
    """Modules at or below a path that ends in one of the names: PEFT's modules_to_save."""
    return tuple(each for each in architecture.modules if _is_saved(each.path, names))


def _is_saved(path: str, names: tuple[str, ...]) -> bool:
    parents = path.split(".")
    prefixes = (".".join(parents[: at + 1]) for at in range(len(parents)))
    return any(p == name or p.endswith(f".{name}") for p in prefixes for name in names)


@cached(512)
def trained_modules(architecture: Architecture, adapter: Adapter) -> tuple[Module, ...]:
    """Modules trained in full: all that are not frozen, or those trained besides adapters."""
    if adapter.kind != "none":
        return modules_to_save(architecture, adapter.also_train)
    return tuple(each for each in architecture.modules if not _is_frozen(each, adapter.frozen))


def _is_frozen(module: Module, frozen: tuple[str, ...]) -> bool:
    of_embeddings = module.kind == "embedding" and "embeddings" in frozen
    return module.fixed or module.part in frozen or of_embeddings


@cached(512)
def trainable_parameters(architecture: Architecture, adapter: Adapter) -> int:
    """Parameters with gradients: adapters and modules trained in full."""
    return adapter_parameters(architecture, adapter) + sum(
        module.parameters for module in trained_modules(architecture, adapter)
    )


def adapter_parameters(architecture: Architecture, adapter: Adapter) -> int:
    """Parameters of the adapters; DoRA adds one magnitude for each output (arXiv 2402.09353)."""
    if adapter.kind == "none":
        return 0
    modules = adapted_modules(architecture, adapter.targets, adapter.parameters)
    magnitudes = sum(m.shape[0] * m.copies for m in modules) if adapter.dora else 0
    return lora_parameters(architecture, modules, adapter.rank) + magnitudes


# ── naming a set of modules so that PEFT finds exactly these ─────────────────────────────────────

# transformers 4.52 moved `language_model.model` of models that see to `model.language_model`
# (conversion mappings in models/llava/modeling_llava.py, `_checkpoint_conversion_mapping`).
_RENAMED = {"model.language_model.": r"(model\.language_model|language_model\.model)\."}


@cached(512)
def name_modules(architecture: Architecture, wanted: tuple[Module, ...]) -> str | tuple[str, ...]:
    """Name modules as PEFT reads them: by suffix if that matches nothing else, else by a regex.

    PEFT matches modules that hold others, too, and refuses them: `Gemma4ClippableLinear` is called
    `q_proj` in a tower (peft 0.21.2 tuners/lora/model.py `_create_new_module`).
    """
    for parts in (1, 2, 3):
        suffixes = tuple(sorted({_suffix(module.path, parts) for module in wanted}))
        names = tuple(f".{each}" for each in suffixes)
        if any(path.endswith(names) for path in _holders(architecture)):
            continue
        if set(matching(architecture, suffixes)) == set(wanted):
            return suffixes
    return _regex(wanted)


@cached(512)
def _holders(architecture: Architecture) -> frozenset[str]:
    """Paths of the modules that hold others."""
    paths = {module.path for module in architecture.modules}
    above = {path.rpartition(".")[0] for path in paths if "." in path}
    found = set(above)
    while above:
        above = {path.rpartition(".")[0] for path in above if "." in path} - found
        found |= above
    return frozenset(found)


def _suffix(path: str, parts: int = 1) -> str:
    """The last parts of a path that identify the module: `q_proj`, `to_out.0`, `ff.net.2`.

    Numbers do not count as parts, and a suffix does not extend to an index.
    """
    names = path.split(".")
    start, counted = len(names), 0
    while start and counted < parts and names[start - 1] != "{}":
        start -= 1
        counted += not names[start].isdigit()
    return ".".join(names[start:])


def _regex(modules: Iterable[Module]) -> str:
    by_parent: dict[str, list[str]] = {}
    for module in modules:
        suffix = _suffix(module.path)
        by_parent.setdefault(module.path.removesuffix(suffix), []).append(suffix)
    return "|".join(_pattern(parent, names) for parent, names in by_parent.items())


def _pattern(parent: str, names: list[str]) -> str:
    prefix = next((old for old in _RENAMED if parent.startswith(old)), "")
    start = _RENAMED.get(prefix, "")
    rest = re.escape(parent.removeprefix(prefix)).replace(r"\{\}", r"\d+")
    ends = "|".join(re.escape(name) for name in dict.fromkeys(names))
    return f"{start}{rest}({ends})"
