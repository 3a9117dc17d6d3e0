"""What a plan is made from: the spec with every name in it resolved."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any

from tunec.compiler.analyses.memory.calibration import Calibration
from tunec.compiler.analyses.selection import Selection
from tunec.compiler.ir.ledger import Definition
from tunec.compiler.ir.plan import Draft
from tunec.schemas.frozen import dataclass
from tunec.schemas.hardware.profile import Cluster, Device
from tunec.schemas.models.architecture import Architecture
from tunec.schemas.models.card import ModelCard
from tunec.schemas.spec import Spec
from tunec.schemas.terms import FloatDtype

_reader = cache(attrgetter)
"""Reads an attribute of an attribute by a dotted path."""


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model with its architecture derived."""

    path: str
    """What `from_pretrained` is given."""
    architecture: Architecture
    components: tuple[Architecture, ...]
    """Models loaded beside it: text encoders, VAE."""
    stored_dtype: FloatDtype
    card: ModelCard | None
    """The catalogue's card; None for a model given by its config."""
    calibration: Calibration | None = None
    """A trace of it that was kept."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that passes may know besides earlier decisions."""

    spec: Spec
    model: ResolvedModel
    cluster: Cluster
    devices: Mapping[str, Device]
    """Catalogue device of every name that the cluster's nodes use."""
    selection: Selection
    """The devices of the cluster that the spec asks for."""
    versions: Mapping[str, str]
    """Consumer versions that will run: spec, command line and cluster joined."""
    pins: Mapping[str, Definition]
    """Definitions of rank PIN by slot: the spec's, the command line's, the asked targets'."""
    needs: tuple[Callable[[Spec, Draft], Iterable[Definition]], ...] = ()
    """Pins of the asked targets that depend on what is decided; the others win over them."""

    def at(self, path: str) -> Any:
        """A fact by its path: `spec.method`."""
        return _reader(path)(self)

    def pinned(self, slot: str, otherwise: Any = None) -> Any:
        """The pinned value of a slot, or `otherwise`."""
        pin = self.pins.get(slot)
        return otherwise if pin is None else pin.value

    def informed(self, draft: Draft) -> "Facts":
        """The facts with the pins that follow from the groups decided so far."""
        found = {each.slot: each for need in self.needs for each in need(self.spec, draft)}
        new = {slot: pin for slot, pin in found.items() if slot not in self.pins}
        return replace(self, pins={**self.pins, **new}) if new else self
