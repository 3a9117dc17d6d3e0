"""What a plan is made from: the spec with every name in it resolved."""

from collections.abc import Callable, Container, Iterable, Mapping
from operator import attrgetter
from typing import Any

from msgspec import Struct, field

from tunec.compiler.analyses.counting import TRAINER, Counting
from tunec.compiler.analyses.memory.calibration import Calibration
from tunec.compiler.analyses.packing import Lengths
from tunec.compiler.analyses.selection import Selection
from tunec.compiler.ir.ledger import Definition
from tunec.compiler.ir.plan import Draft
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.profile import Cluster, Device
from tunec.schemas.models.architecture import Architecture
from tunec.schemas.models.card import ModelCard
from tunec.schemas.models.published_form import Published
from tunec.schemas.spec import Spec
from tunec.schemas.terms import FloatDtype


@cached()
def _reader(paths: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that reads attributes by their dotted paths."""
    if len(paths) > 1:
        return attrgetter(*paths)
    return lambda facts: tuple(attrgetter(path)(facts) for path in paths)


class ResolvedModel(Struct, frozen=True):
    """A model with its architecture derived."""

    path: str
    """The argument of `from_pretrained`."""
    architecture: Architecture
    components: tuple[Architecture, ...]
    """Models that are loaded beside it: text encoders and the VAE."""
    stored_dtype: FloatDtype
    card: ModelCard | None
    """The catalogue's card; None if the model is given by its config."""
    calibration: Calibration | None = None
    """A stored trace of the model."""
    published: Published = "none"
    """The quantised form of its published weights, if its config names one."""
    read_since: str | None = None
    """The first release of transformers that reads its config as it is written; None: every one."""
    lora_targets: tuple[str, ...] = ()
    """What LoRA normally adapts in models of its class, if the catalogue says so."""


class Need(Struct, frozen=True):
    """Pins that a target sets once it knows the spec or more of the plan."""

    pins: Callable[[Spec, Draft], Iterable[Definition]]
    after: str | None = None
    """The group that must be decided before it pins anything; None: it may depend on any group."""


class Facts(Struct, frozen=True):
    """Everything that a pass may know besides earlier decisions."""

    spec: Spec
    model: ResolvedModel
    cluster: Cluster
    devices: Mapping[str, Device]
    """The catalogue's device for every name that the cluster's nodes use."""
    selection: Selection
    """The devices of the cluster that the spec requests."""
    versions: Mapping[str, str]
    """The consumer versions that will run, from the spec, the command line and the cluster."""
    pins: Mapping[str, Definition]
    """Definitions of rank PIN by slot, from the spec, the command line and the requested
    targets."""
    releases: Mapping[str, str] = field(default_factory=dict)
    """The release of each package for which the requested targets' files are written."""
    imports: tuple[Callable[[Draft], Iterable[str]], ...] = ()
    """Further distributions that the requested targets' programs import for a plan, as pip names
    them."""
    needs: tuple[Need, ...] = ()
    """Pins of the requested targets that depend on decisions; other pins win over them."""
    takes_fsdp: bool = False
    """Whether targets are requested, and all of them can express FSDP."""
    starts_workers: bool = False
    """Whether a requested target's program starts the other processes itself, for example through
    Ray."""
    lengths: Lengths | None = None
    """The known distribution of sample lengths in tokens."""
    counted: int | None = None
    """The samples of an epoch as counted in the training data, if it lies beside the spec. It only
    serves messages: what is decided does not depend on files that may be elsewhere."""
    critic: ResolvedModel | None = None
    """The model that gives each token a value, with its head; None: no critic is trained."""
    counting: Counting = TRAINER
    """How the requested trainer counts its steps."""

    @property
    def tries_fsdp(self) -> bool:
        """Whether the search considers FSDP although no engine is requested."""
        asked = self.pinned("parallel.engine", self.spec.engine)
        return self.takes_fsdp and asked is None and self.selection.count > 1

    def values_at(self, paths: tuple[str, ...]) -> tuple[Any, ...]:
        """Facts by their dotted paths, such as `spec.method`."""
        return _reader(paths)(self)

    def pinned(self, slot: str, otherwise: Any = None) -> Any:
        """The pinned value of a slot, or `otherwise`."""
        pin = self.pins.get(slot)
        return otherwise if pin is None else pin.value

    def pinned_values(self, among: Container[str]) -> tuple[tuple[str, str], ...]:
        """Pinned slots with their values as text, so that equal pins compare equal."""
        if not self.pins:
            return ()
        return tuple((slot, repr(pin.value)) for slot, pin in self.pins.items() if slot in among)

    def informed(self, draft: Draft) -> "Facts":
        """The facts with the pins that follow from the groups decided so far."""
        asked = [each for each in self.needs if each.after is None or each.after in draft.groups]
        found = {each.slot: each for need in asked for each in need.pins(self.spec, draft)}
        new = {slot: pin for slot, pin in found.items() if slot not in self.pins}
        return replace(self, pins={**self.pins, **new}) if new else self
