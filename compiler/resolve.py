"""Resolve every name in a spec: model, architecture, hardware, versions, pins."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from tunec.compiler.analyses.architecture import (
    Fault,
    UnknownArchitecture,
    UnusableConfig,
    derive,
    with_images,
)
from tunec.compiler.analyses.architecture.classifiers import (
    for_task,
    has_head,
    head_named,
    in_words,
    with_head,
)
from tunec.compiler.analyses.memory.calibration import Calibration
from tunec.compiler.analyses.selection import Selection, select
from tunec.compiler.derived_cards import KEY, NoCard, card_of, pipeline_class_in, pipeline_of
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import shortened
from tunec.compiler.facts import Facts, ResolvedModel
from tunec.compiler.frontend.measurements import with_measured
from tunec.compiler.frontend.names import (
    File,
    check_hardware,
    check_model,
    is_path,
    is_written_as_path,
)
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.project import Project
from tunec.compiler.ir.ledger import Definition, Origin, Rank
from tunec.schemas.caches import BoundedCache, cached
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import cluster, device
from tunec.schemas.hardware.profile import Cluster, Device
from tunec.schemas.models.architecture import Architecture
from tunec.schemas.models.card import ModelCard
from tunec.schemas.models.catalogue import card, denoiser_cards, repository
from tunec.schemas.models.config_forms import read_since, stored_in
from tunec.schemas.models.published_form import published_in
from tunec.schemas.source import start_of
from tunec.schemas.spec import DeviceChoice, InlineModel, Spec
from tunec.schemas.spec_sections import A_VALUE, ONE_NUMBER, Task
from tunec.schemas.terms import FloatDtype

PINNED: Final = "pinned by the spec"
"""The reason of a pin for which the spec gives none."""

_Read = TypeVar("_Read")


class Unresolved(Exception):
    """Names or files of a spec cannot be resolved; carries a diagnostic for each.

    `files` are files that were read and contain the fault.
    """

    def __init__(self, diagnostics: tuple[Diagnostic, ...], files: tuple[File, ...] = ()) -> None:
        super().__init__("; ".join(each.message for each in diagnostics))
        self.diagnostics = diagnostics
        self.files = files


def resolve(
    spec: Spec,
    base: Path,
    requires: Iterable[Definition] = (),
    versions: Mapping[str, str] | None = None,
    followed: Mapping[str, Any] | None = None,
    calibration: Calibration | None = None,
) -> Facts:
    """Resolve a spec; its paths are relative to the directory `base`.

    `requires` are pins of the requested targets, `versions` the versions on the command line,
    `followed` and `calibration` what the frontend has already read from the spec's paths. Raises
    Unresolved with a diagnostic for every name that cannot be resolved.
    """
    faults: list[Diagnostic] = []
    model = _attempt(lambda: resolve_model(spec.model, base, followed, spec.head), "model", faults)
    hardware = _attempt(lambda: resolve_cluster(spec.hardware, base, followed), "hardware", faults)
    if model is None or hardware is None:
        raise Unresolved(tuple(faults))
    devices, selection = _hardware(hardware, spec.devices)
    pins = _pins(spec, requires)
    beyond = tuple(_beyond(pins, selection, hardware)) if spec.pin else ()
    if beyond:
        raise Unresolved(beyond)
    of_values = partial(resolve_model, spec.critic or "", base, followed, A_VALUE)
    critic = _attempt(of_values, "objective", faults) if spec.critic else None
    if faults:
        raise Unresolved(tuple(faults))
    return Facts(
        spec=spec,
        model=replace(model, calibration=calibration) if calibration else model,
        critic=critic,
        cluster=hardware,
        devices=devices,
        selection=selection,
        versions={**hardware.software, **spec.software, **(versions or {})},
        pins=pins,
    )


def _attempt(read: Callable[[], _Read], at: str, faults: list[Diagnostic]) -> _Read | None:
    try:
        return read()
    except Unresolved as fault:
        faults += fault.diagnostics
    except UnusableConfig as fault:
        faults += [_config_fault(each, at) for each in fault.faults]
    except NoCard as fault:
        place = (Label("", path=at),)
        faults.append(Diagnostic(fault.code, "error", str(fault), place, help=fault.help))
    except (LookupError, ValueError, OSError) as fault:
        faults.append(Diagnostic("E0305", "error", _words(fault), (Label("", path=at),)))
    return None


def _config_fault(fault: Fault, at: str) -> Diagnostic:
    message = f"the model's config cannot be used: {fault.path} is {shortened(fault.found)}"
    hint = f"{fault.path} must be {fault.expected}"
    return Diagnostic("E0312", "error", message, (Label("", path=at),), help=hint)


def _words(fault: Exception) -> str:
    if isinstance(fault, UnknownArchitecture):
        return f"the family {fault.family!r} is not supported: no rule derives its architecture"
    return str(fault.args[0]) if fault.args else str(fault)


def resolve_model(
    model: str | InlineModel,
    base: Path,
    followed: Mapping[str, Any] | None = None,
    task: Task | None = None,
) -> ResolvedModel:
    """Find a model by catalogue name, by the path of its config, or by inline facts.

    A name with its organisation identifies the weights and is kept; the catalogue only adds what is
    known of their modules. A task puts a head of its own on them.
    """
    if isinstance(model, InlineModel):
        config = model.config
        facts = _config(config, base, followed) if isinstance(config, str) else config
        stored = model.stored_dtype if "stored_dtype" in model.model_fields_set else None
        return _of_config(model.path, facts, stored, task)
    if not _is_path(model, base, followed):
        return _with_task(catalogued(model), task)
    facts = _config(model, base, followed)
    where = base / model
    directory = pipeline_of(where.parent if where.is_file() else where)
    path = str(directory) if is_path(model, base) else model
    return _of_config(_weights(facts) or path, facts, stored_in(_inner(facts)), task)


def _of_config(
    path: str, facts: Mapping[str, Any], stored: FloatDtype | None, task: Task | None
) -> ResolvedModel:
    """A model given by its config, with what the catalogue knows of a pipeline like it."""
    pipeline, facts = pipeline_class_in(facts)
    made = _of_task(facts, task)
    inner = _inner(facts)
    found = ResolvedModel(
        path, made, (), stored or "bf16", None, None, published_in(inner), read_since(inner)
    )
    if made.kind != "diffusion":
        return found
    known = tuple(denoiser_cards(made.family, pipeline))
    alike = [each for each in known if _derived(each.config) == made]
    nearest = max(alike, key=partial(_shared, facts), default=None)
    if nearest is None:
        return _with_class(found, known)
    return replace(
        _of_weights(nearest.repo), path=path, stored_dtype=stored or nearest.stored_dtype
    )


def _shared(facts: Mapping[str, Any], known: ModelCard) -> int:
    """The number of settings that a config has like a card's."""
    return sum(facts.get(key) == value for key, value in known.config.items())


def _with_class(model: ResolvedModel, known: Sequence[ModelCard]) -> ResolvedModel:
    """A denoiser like no other with what the catalogue knows of its class."""
    if not known:
        return model
    architecture = known[0].completed(model.architecture)
    return replace(model, architecture=architecture, lora_targets=known[0].lora_targets)


def _with_task(model: ResolvedModel, task: Task | None) -> ResolvedModel:
    """The catalogue's model with the head that a task asks for."""
    if task is None or model.card is None:
        return model
    return replace(model, architecture=_of_task(model.card.config, task, model.card.processor))


def _of_task(
    facts: Mapping[str, Any], task: Task | None, *processor: Mapping[str, Any]
) -> Architecture:
    """An architecture from a config or its card, with the head that a task needs."""
    words = _derived(facts, *processor)
    if task is None:
        return words
    asked = for_task(_inner(facts), task)
    if not has_head(words.family, task.asked[0]):
        at = "objective" if task is ONE_NUMBER or task is A_VALUE else "task"
        said = f"{at} does not fit this model: no such head of {words.family} is known"
        hint, place = f"remove {at}, or choose another model", (Label("", path=at),)
        raise Unresolved((Diagnostic("E0802", "error", said, place, help=hint),))
    return with_head(words, asked) if KEY in facts else _derived(asked, *processor)


def _weights(facts: Mapping[str, Any]) -> str:
    """The repository that a derived card names, if it stands in for a config."""
    return str(facts.get("model", "")) if KEY in facts else ""


def _is_path(name: str, base: Path, followed: Mapping[str, Any] | None) -> bool:
    """Whether a name means a file or directory; the frontend's answer is used if there is one."""
    if followed is None:
        return is_path(name, base)
    return name in followed or is_written_as_path(name)


def _config(path: str, base: Path, followed: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if followed and path in followed:
        facts: Mapping[str, Any] = followed[path]
        return facts
    found = check_model(path, _NOWHERE, Project(base))
    if found.config is None:
        raise Unresolved(found.faults, found.files)
    return found.config


_NO_PROCESSOR: Final[Mapping[str, Any]] = {}
_NOWHERE: Final = Node(start_of(""))
"""A tree without places, for configs that are in no spec."""


def _derived(*given: Mapping[str, Any]) -> Architecture:
    """The architecture of a config and its processor's; equal configs give one object."""
    return _of_text(json.dumps(given, default=list))


@cached(256)
def _of_text(texts: str) -> Architecture:
    config, *processor = json.loads(texts)
    if head_named(config) is not None:
        return with_head(_of_text(json.dumps([in_words(config), *processor])), config)
    if KEY not in config:
        try:
            return _with_activation(derive(config, *processor), config)
        except UnknownArchitecture as unknown:
            return _read_off(config, unknown.family, *processor)
    return _read_off(config, str(config.get("family")), *processor)


def _with_activation(found: Architecture, config: Mapping[str, Any]) -> Architecture:
    return replace(found, activation=found.activation or str(config.get("hidden_act", "")))


def _read_off(
    config: Mapping[str, Any], family: str, processor: Mapping[str, Any] = _NO_PROCESSOR
) -> Architecture:
    """The architecture of a family without a rule, read from its card. Raises ValueError."""
    try:
        kept = card_of(config)
    except NoCard as reason:
        raise NoCard(
            f"no rule derives the family {family!r}, and its card could not be made: {reason}",
            help=reason.help,
            code=reason.code,
        ) from None
    found = kept.architecture
    if found.denoiser is not None and "3D" in found.family and not found.latent_time:
        raise ValueError(f"{found.family!r} trains on clips, whose frames no plan counts")
    return _with_activation(with_images(found, kept.config, processor), kept.config)


def _inner(facts: Mapping[str, Any]) -> Any:
    """The config itself, where `facts` are a derived card."""
    return facts["config"] if KEY in facts else facts


def catalogued(name: str) -> ResolvedModel:
    """A model by a name of the catalogue. Raises UnknownName if the catalogue does not have it."""
    return _of_weights(repository(name))


@cached(256)
def _of_weights(path: str) -> ResolvedModel:
    """The catalogue's model for the weights in a repository; one object for each repository."""
    found = card(path)
    components = tuple(
        catalogued(each.model).architecture if each.model else _derived(each.config)
        for each in found.components
    )
    architecture = _derived(found.config, found.processor)
    return ResolvedModel(
        path,
        found.completed(architecture),
        components,
        found.stored_dtype,
        found,
        published=published_in(found.config),
        lora_targets=found.lora_targets,
    )


def resolve_cluster(
    hardware: str | Cluster, base: Path, followed: Mapping[str, Any] | None = None
) -> Cluster:
    """Find a cluster by catalogue name or file, or use the inline one."""
    if isinstance(hardware, Cluster):
        return hardware
    if followed and hardware in followed:
        known: Cluster = followed[hardware]
        return known
    if not _is_path(hardware, base, followed):
        known = cluster(hardware)
        return known if followed is not None else _with_measured(known, base)
    found = check_hardware(hardware, _NOWHERE, Project(base))
    if found.cluster is None:
        raise Unresolved(found.faults, found.files)
    return found.cluster


def _with_measured(known: Cluster, base: Path) -> Cluster:
    found = with_measured(known, base)
    if found.faults and found.path is not None:
        raise Unresolved(found.faults, (File(found.path, found.content),))
    return found.cluster


def _hardware(cluster: Cluster, choice: DeviceChoice) -> tuple[Mapping[str, Device], Selection]:
    """The devices of a cluster, and the ones that a spec requests; cached for all specs."""

    def found() -> tuple[Mapping[str, Device], Selection]:
        devices = devices_of(cluster)
        return devices, select(cluster, devices, choice)

    return _HARDWARE.of((cluster,), (choice.use, choice.count), found)


_HARDWARE: Final = BoundedCache[tuple[Mapping[str, Device], Selection]](
    "compiler.resolve.hardware", 4096, lasting=True
)


def devices_of(hardware: Cluster) -> dict[str, Device]:
    """The catalogue's device for each name in a cluster."""
    names = {group.device for node in hardware.nodes for group in node.accelerators}
    return {name: device(name) for name in sorted(names)}


def _pins(spec: Spec, requires: Iterable[Definition]) -> dict[str, Definition]:
    pins = {each.slot: each for each in requires}
    for path, given in spec.pin.items():
        value, reason = _value_and_reason(given)
        pins[path] = Definition(
            path, value, Rank.PIN, "spec", reason, (Origin("spec", f"pin.{path}"),)
        )
    return pins


def _beyond(
    pins: Mapping[str, Definition], selection: Selection, hardware: Cluster
) -> Iterator[Diagnostic]:
    """Report pins of more nodes or devices than are available."""
    there = {"devices.nodes": selection.nodes, "devices.per_node": len(selection.places)}
    for slot, most in there.items():
        pinned = pins[slot].value if slot in pins else 0
        if pinned > most:
            yield Diagnostic(
                "E0405",
                "error",
                f"the pin of `{slot}` must be at most {most}, and is `{pinned}`",
                (Label("more than are available", path=f"pin.{slot}"),),
                (f"`hardware` is {hardware.name}",),
                help="choose hardware that has as many, or remove the pin",
            )


def _value_and_reason(given: Any) -> tuple[Any, str]:
    if isinstance(given, dict) and set(given) == {"value", "reason"}:
        return _immutable(given["value"]), str(given["reason"])
    return _immutable(given), PINNED


def _immutable(value: Any) -> Any:
    return tuple(_immutable(each) for each in value) if isinstance(value, list) else value
