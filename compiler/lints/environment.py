"""Facts about a run that are not in its files: hardware, processes, releases, model."""

from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest, shortened
from tunec.compiler.frontend.software import is_version, meant_program, plain_name
from tunec.compiler.releases import ANY, Package, Releases, parsed
from tunec.compiler.target import Target
from tunec.schemas.caches import cached

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel
    from tunec.compiler.resolve import Unresolved
    from tunec.schemas.hardware.profile import Cluster, Device, Host


class Pin(Struct, frozen=True):
    """The releases of a package that a file or the command line allows."""

    package: str
    """The package's name, in lower case with dashes."""
    ranges: tuple[Releases, ...]
    """The release is within one of these ranges."""
    where: str
    """The source of the pin: `requirements.txt:3`."""
    is_own: bool = False  # whether it is somebody's own version of the package

    @property
    def exact(self) -> str | None:
        """The only release that the pin allows, if there is just one."""
        if len(self.ranges) != 1 or len(self.ranges[0].bounds) != 1:
            return None
        sign, version = self.ranges[0].bounds[0]
        return version if sign in ("==", "===") and not version.endswith("*") else None

    def contains(self, release: Version | str) -> bool:
        """Whether the pin allows a release."""
        return any(each.contains(release) for each in self.ranges)

    def known(self, releases: Iterable[str]) -> tuple[Version, ...]:
        """The allowed ones of some releases and of the pin's own inclusive bounds, in order."""
        bounds = (bound for each in self.ranges for bound in each.bounds)
        lower = (each for sign, each in bounds if sign in (">=", "==", "===", "~=", "<="))
        named = map(parsed, {*releases, *(each.removesuffix(".*") for each in lower)})
        return tuple(sorted(each for each in named if self.contains(each)))

    def highest(self) -> tuple[Version, ...]:
        """The minor releases just below the pin's bounds, known or not: 2.6 for `<2.7`."""
        bounds = (bound for each in self.ranges for sign, bound in each.bounds if sign == "<")
        below = (_before(parsed(each)) for each in bounds)
        return tuple(each for each in below if each is not None and self.contains(each))

    def __str__(self) -> str:
        return f"{self.package}{' or '.join(str(each) or ' at a commit' for each in self.ranges)}"


def _before(bound: Version) -> Version | None:
    """The minor release before a bound that starts a minor release; None for other bounds."""
    is_first = bound.micro == 0 and bound.minor > 0
    return Version(f"{bound.major}.{bound.minor - 1}") if is_first else None


class Release(Struct, frozen=True):
    """The release of a package that is assumed to run."""

    package: str
    version: Version
    is_named: bool
    """Whether the release was given; otherwise it is the newest that fits the given ones."""
    after: Version | None = None
    """If no release was given: the newest known release that lacks some key of the files."""
    among: tuple[Version, ...] = ()
    """If only a range is known: the known releases within it."""
    pin: Pin | None = None
    """The pin that the release comes from, unless the command line gives the release."""

    @property
    def is_known(self) -> bool:
        """Whether the release, or a range that contains it, is given; of a commit neither is."""
        return self.is_named or (bool(self.among) and not self.is_of_commit)

    @property
    def candidates(self) -> tuple[Version, ...]:
        """Every possible release; what holds for all of them is certain."""
        return self.among or (self.version,)

    @property
    def in_words(self) -> str:
        """The release, or the range, as text."""
        return str(self.pin) if self.among and self.pin is not None else str(self)

    @property
    def is_of_commit(self) -> bool:
        """Whether a commit is required, which may be older or newer than every known release."""
        return not self.is_named and self.pin is not None and ANY in self.pin.ranges

    def is_in(self, specifiers: Releases) -> bool | None:
        """Whether the release is in a range; None if neither versions nor keys determine that."""
        if self.is_known:
            held = {specifiers.contains(each) for each in self.candidates}
            return held.pop() if len(held) == 1 else None
        sign, bound = specifiers.text[:2], specifiers.text.lstrip("<>=!~")
        if self.after is None or not bound or "," in bound or self.after < Version(bound):
            return None
        return {">": True, "<": False}.get(sign[0])

    def is_before(self, release: str) -> bool | None:
        """Whether the release is older than another one; a preview counts as the release itself.

        None if no release is given, or the range has releases on both sides.
        """
        bound = Version(release)
        held = {Version(each.base_version) < bound for each in self.candidates}
        return held.pop() if self.is_known and len(held) == 1 else None

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


class Environment(Struct, frozen=True):
    """Facts about a run from the command line and the repository; each may be unknown."""

    cluster: "Cluster | None" = None
    devices: "Mapping[str, Device]" = field(default_factory=dict)
    """The catalogue's device for each device name in the cluster."""
    world: int | None = None
    """The number of processes, from --world-size."""
    model: "ResolvedModel | None" = None
    """The model that --model names, if the catalogue has it."""
    model_name: str | None = None
    """The name that --model gives, whether or not the catalogue has it."""
    software: Mapping[str, str] = field(default_factory=dict)
    """Given versions by distribution: --software, --from NAME@VERSION, the cluster's own."""
    pins: Mapping[str, Pin] = field(default_factory=dict)
    """Pins of other packages: ranges of --software, and the repository's requirements."""
    has_text_alone: bool = False
    """Whether samples contain no images, even if the model accepts them."""
    readers: tuple[str, ...] = ()
    """The targets that --from names, in order."""
    allow_outside: bool = False
    """Whether files may refer to files outside their project."""

    @property
    def hosts(self) -> "tuple[Host, ...]":
        """The host of each group of nodes; empty if the hardware is unknown."""
        return tuple(node.host for node in self.cluster.nodes) if self.cluster else ()

    @property
    def is_host_assumed(self) -> bool:
        """Whether only devices were given (schemas/hardware/catalogue.py `_assumed`)."""
        told = self.cluster.sources if self.cluster is not None else {}
        return told.get("nodes[0].host", "").startswith("assumed")

    def names(self, package: str) -> bool:
        """Whether the command line or the repository gives a single release of a package."""
        pin = self.pins.get(plain_name(package))
        return package in self.software or (pin is not None and pin.exact is not None)

    def has_memory(self, count: int | str) -> bool:
        """Whether every node has at least `count` bytes of RAM; True if the hardware is unknown.

        Clusters of many sizes give the same answer, which would not be so for the size itself.
        """
        return all(host.memory >= int(count) for host in self.hosts)

    def has_cores(self, count: int | str) -> bool:
        """Whether every node has at least `count` cores; True if the hardware is unknown."""
        return all(host.cores >= int(count) for host in self.hosts)

    @property
    def weakest(self) -> "Device | None":
        """The NVIDIA device of lowest compute capability, else the first device; None: unknown."""
        known = [each for each in self.devices.values() if each.compute_capability]
        lowest = min(known, key=lambda each: each.compute_capability or (0, 0), default=None)
        return lowest or next(iter(self.devices.values()), None)


@cached()
def split_requirement(requirement: str) -> tuple[str, Releases]:
    """Split `deepspeed>=0.19.6` into a name and a range; a bare name has the empty range."""
    at = next((i for i, letter in enumerate(requirement) if letter in "<>=!~"), len(requirement))
    return requirement[:at].strip(), Releases(requirement[at:])


def releases(
    targets: Mapping[str, Target], environment: Environment, running: Container[str] = ()
) -> Iterable[tuple[str, Release]]:
    """Each package's release: the given one, else one that fits the given ones, else the newest.

    The packages come from DeepSpeed's table and the trainers' companions; a given version of
    another package is used as it is. A trainer's own requirement wins over the repository's if the
    trainer is in `running`.
    """
    named, found = environment.software, dict[str, Release]()
    for target in targets.values():
        own = Package(target.supported, target.releases or (target.latest,))
        held = found.setdefault(
            target.package, _release(target.package, own, environment, target.latest)
        )
        usual = target.companions(held.version)
        brings = target.installs(held.version) if held.is_known and target.name in running else {}
        for name, package in target.beside.items():
            pin = Pin(name, (brings[name],), f"{held} requires it") if name in brings else None
            otherwise = usual.get(name) or package.latest
            found.setdefault(name, _release(name, package, environment, otherwise, pin))
    found |= {n: Release(n, Version(v), is_named=True) for n, v in named.items() if n not in found}
    rest = environment.pins.keys() - set(map(plain_name, found))
    for name, pin in environment.pins.items():
        if pin.exact is not None and name in rest:
            found[name] = Release(name, _whole(pin.exact), is_named=True, pin=pin)
    return found.items()


def _release(
    name: str,
    package: Package,
    environment: Environment,
    otherwise: str,
    pin: Pin | None = None,
) -> Release:
    named = environment.software
    if name in named:
        try:
            return Release(name, package.release(named[name]), is_named=True)
        except ValueError:  # InvalidVersion is one; so is a number of too many digits
            pass
    pin = pin or environment.pins.get(plain_name(name))
    if pin is None:
        return Release(name, package.release(otherwise), is_named=False)
    return _pinned(name, pin, package, package.release(otherwise))


def _pinned(name: str, pin: Pin, package: Package, usual: Version) -> Release:
    """The release that a pin fixes, else the usual one if in range, else the newest in range."""
    if pin.exact is not None:
        return Release(name, _whole(pin.exact), is_named=True, pin=pin)
    known = pin.known(package.releases)
    if not known:
        return Release(name, usual, is_named=False)
    version = usual if pin.contains(usual) else known[-1]
    among = tuple(sorted({*known, *pin.highest()}))
    return Release(name, version, is_named=False, among=among, pin=pin)


def _whole(text: str) -> Version:
    """The release that pip installs for `==4.44`: 4.44.0, and not the newest 4.44."""
    is_minor = text.count(".") == 1 and text.replace(".", "").isdigit()
    return Version(f"{text}.0" if is_minor else text)


class Unusable(ValueError):
    """A name or version of the surroundings is unknown or invalid; the message gives the reason."""


class Faulty(Exception):
    """A file that describes the surroundings is faulty: the faults, and the text by file name."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...], sources: Mapping[str, str]) -> None:
        super().__init__("; ".join(each.message for each in diagnostics))
        self.diagnostics = diagnostics
        self.sources = sources


def environment_of(
    targets: Mapping[str, Target],
    *,
    hardware: str | None = None,
    model: str | None = None,
    world: int | None = None,
    readers: Sequence[str] = (),
    software: Mapping[str, str] | None = None,
    allow_outside: bool = False,
) -> Environment:
    """Resolve the given names: hardware and model as in a spec, readers as `NAME[@VERSION]`.

    A version in `software` wins over one in `readers`, which wins over the hardware's own; it may
    be bounds (`>=4.40,<5`). Of a model that the catalogue lacks, only the name is known. Raises
    Unusable for other unknown names and versions, Faulty for a faulty file.
    """
    if world is not None and world < 1:
        raise Unusable(f"a run has at least 1 process, not {world}")
    named = [each.partition("@") for each in readers]
    by_reader = {_target(name, targets).package: v for name, _, v in named if v}
    cluster = _cluster(hardware)
    given = {**(cluster.software if cluster else {}), **by_reader, **(software or {})}
    pins = {name: pin for name, text in given.items() if (pin := pin_of(name, text)) is not None}
    versions = {name: text for name, text in given.items() if name not in pins}
    _check_versions(versions)
    _check_bounds(pins, targets)
    from tunec.compiler.resolve import devices_of

    return Environment(
        cluster=cluster,
        devices=devices_of(cluster) if cluster else {},
        world=world,
        model=_model(model),
        model_name=model,
        software=versions,
        pins={plain_name(name): pin for name, pin in pins.items()},
        readers=tuple(_target(name, targets).name for name, _, _ in named),
        allow_outside=allow_outside,
    )


def _target(name: str, targets: Mapping[str, Target]) -> Target:
    if name not in targets:
        hint = did_you_mean(nearest(name, targets)) or f"there are {joined(targets, 'and')}"
        raise Unusable(f"no reader of configs is called {name!r}; {hint}")
    return targets[name]


def pin_of(package: str, text: str) -> Pin | None:
    """The pin for a text with bounds; None if the text is a version."""
    return Pin(package, (Releases(text),), "--software") if text[:1] in tuple("<>=!~") else None


def package_of(targets: Mapping[str, Target], name: str) -> Package | None:
    """The package of a name, from the table that knows the most releases of it."""
    own = [each for each in targets.values() if each.package == name]
    tables = [Package(each.supported, each.releases or (each.latest,)) for each in own]
    beside = [each.beside[name] for each in targets.values() if name in each.beside]
    return max((*tables, *beside), key=lambda each: len(each.releases), default=None)


def _check_bounds(pins: Mapping[str, Pin], targets: Mapping[str, Target]) -> None:
    for name, pin in pins.items():
        _check_name(name)
        _check_written(name, pin)
        package = package_of(targets, name)
        if package is not None and not pin.known(package.releases):
            told = f"no known release of {name} ({package.supported}) is in {pin.ranges[0]}"
            raise Unusable(f"{told}; name one release: --software {name}=VERSION")


def _check_written(package: str, pin: Pin) -> None:
    for sign, text in pin.ranges[0].bounds:
        if not sign or not is_version(text.removesuffix(".*")):
            told = f"`{shortened(str(pin.ranges[0]))}` are no bounds of a version of {package}"
            raise Unusable(f"{told}; write it as in {package}>=1.2,<2")


def _check_name(package: str) -> None:
    meant = meant_program(package)
    if meant is not None:
        raise Unusable(f"no program is called {package!r}; {did_you_mean([meant])}")


def _check_versions(versions: Mapping[str, str]) -> None:
    for package, text in versions.items():
        _check_name(package)
        try:
            Version(text)
        except ValueError:  # InvalidVersion is one; so is a number of too many digits
            raise Unusable(f"`{shortened(text)}` is no version of {package}") from None


def _cluster(name: str | None) -> "Cluster | None":
    if name is None:
        return None
    from tunec.compiler.resolve import Unresolved, resolve_cluster

    try:
        return resolve_cluster(name, Path())
    except Unresolved as fault:
        raise _fault(name, fault) from None
    except (LookupError, ValueError, OSError) as fault:
        raise Unusable(_words(fault)) from None


def _model(name: str | None) -> "ResolvedModel | None":
    if name is None:
        return None
    from tunec.compiler.resolve import Unresolved, resolve_model
    from tunec.schemas.models.catalogue import UnknownName

    try:
        return resolve_model(name, Path())
    except UnknownName:
        return None
    except Unresolved as fault:
        raise _fault(name, fault) from None
    except (LookupError, ValueError, OSError) as fault:
        raise Unusable(_words(fault)) from None


def _fault(name: str, fault: "Unresolved") -> Unusable | Faulty:
    if fault.files:
        return Faulty(fault.diagnostics, dict(each.source for each in fault.files))
    return Unusable(f"{name}: {fault}")


def _words(fault: Exception) -> str:
    hint = did_you_mean(getattr(fault, "near", ()))
    return f"{fault}; {hint}" if hint else str(fault) or type(fault).__name__
