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
    """Reads attributes of attributes by their dotted paths."""
    if len(paths) > 1:
        return attrgetter(*paths)
    return lambda facts: tuple(attrgetter(path)(facts) for path in paths)


class ResolvedModel(Struct, frozen=True):
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
    published: Published = "none"
    """The form of its weights, where its config says that they are quantised."""


class Need(Struct, frozen=True):
    """What a target pins once it knows the spec, or more of the plan."""

    pins: Callable[[Spec, Draft], Iterable[Definition]]
    after: str | None = None
    """The group on which it rests, before which it pins nothing; None: it may rest on any."""


class Facts(Struct, frozen=True):
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
    releases: Mapping[str, str] = field(default_factory=dict)
    """The release of each package that the asked targets' files are written for."""
    imports: tuple[Callable[[Draft], Iterable[str]], ...] = ()
    """What else the programs of the asked targets import for a plan, as pip takes it."""
    needs: tuple[Need, ...] = ()
    """Pins of the asked targets that depend on what is decided; the others win over them."""
    takes_fsdp: bool = False
    """Whether there are asked targets, and all of them can say FSDP."""
    starts_workers: bool = False
    """Whether the program of an asked target starts the other processes itself, as by Ray."""
    lengths: Lengths | None = None
    """What is known of the tokens of each sample."""
    counting: Counting = TRAINER
    """How the trainer that is asked for counts its steps."""

    @property
    def tries_fsdp(self) -> bool:
        """Whether the search looks at FSDP, though no engine is requested."""
        asked = self.pinned("parallel.engine", self.spec.engine)
        return self.takes_fsdp and asked is None and self.selection.count > 1

    def values_at(self, paths: tuple[str, ...]) -> tuple[Any, ...]:
        """Facts by their paths, such as `spec.method`."""
        return _reader(paths)(self)

    def pinned(self, slot: str, otherwise: Any = None) -> Any:
        """The pinned value of a slot, or `otherwise`."""
        pin = self.pins.get(slot)
        return otherwise if pin is None else pin.value

    def pinned_values(self, among: Container[str]) -> tuple[tuple[str, str], ...]:
        """Pinned slots with their values, as text that tells them from others."""
        if not self.pins:
            return ()
        return tuple((slot, repr(pin.value)) for slot, pin in self.pins.items() if slot in among)

    def informed(self, draft: Draft) -> "Facts":
        """The facts with the pins that follow from the groups decided so far."""
        asked = [each for each in self.needs if each.after is None or each.after in draft.groups]
        found = {each.slot: each for need in asked for each in need.pins(self.spec, draft)}
        new = {slot: pin for slot, pin in found.items() if slot not in self.pins}
        return replace(self, pins={**self.pins, **new}) if new else self
