"""What is known of a run besides its files: hardware, processes, releases, model."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest, shortened
from tunec.compiler.frontend.software import meant_program
from tunec.compiler.releases import Package, Releases
from tunec.compiler.target import Target
from tunec.schemas.caches import cached

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel
    from tunec.compiler.resolve import Unresolved
    from tunec.schemas.hardware.profile import Cluster, Device, Host


class Release(Struct, frozen=True):
    """The release of a package that is taken to run."""

    package: str
    version: Version
    is_named: bool
    """Whether somebody named it; otherwise it is the newest that goes with what was named."""
    after: Version | None = None
    """The newest known release that lacks some key of the files, where nobody named one."""

    def is_in(self, specifiers: Releases) -> bool | None:
        """Whether it is within a range; None where nobody named it and no key tells."""
        if self.is_named:
            return specifiers.contains(self.version)
        sign, bound = specifiers.text[:2], specifiers.text.lstrip("<>=!~")
        if self.after is None or not bound or "," in bound or self.after < Version(bound):
            return None
        return {">": True, "<": False}.get(sign[0])

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


class Environment(Struct, frozen=True):
    """What the command line says of a run; each part may be unknown."""

    cluster: "Cluster | None" = None
    devices: "Mapping[str, Device]" = field(default_factory=dict)
    """Catalogue device of each name in the cluster."""
    world: int | None = None
    """Processes, as --world-size says."""
    model: "ResolvedModel | None" = None
    """The model that --model names, if the catalogue has it."""
    model_name: str | None = None
    """The name that --model gives, whether the catalogue has it or not."""
    software: Mapping[str, str] = field(default_factory=dict)
    """Named versions by distribution: --software, --from NAME@VERSION, the cluster's own."""
    readers: tuple[str, ...] = ()
    """Targets that --from names, in order."""
    allow_outside: bool = False
    """Whether files may name others outside of their project."""

    @property
    def hosts(self) -> "tuple[Host, ...]":
        """The computer of each group of nodes; empty where the hardware is unknown."""
        return tuple(node.host for node in self.cluster.nodes) if self.cluster else ()

    @property
    def is_host_assumed(self) -> bool:
        """Whether only devices were named, and what stands around them is the usual of their kind.

        schemas/hardware/catalogue.py `_assumed`: `v100-sxm2-32g-x2`.
        """
        told = self.cluster.sources if self.cluster is not None else {}
        return told.get("nodes[0].host", "").startswith("assumed")

    def has_memory(self, count: int | str) -> bool:
        """Whether every node has so many bytes of RAM, where the hardware is known.

        Clusters of many sizes answer alike, which those who read the size itself do not.
        """
        return all(host.memory >= int(count) for host in self.hosts)

    def has_cores(self, count: int | str) -> bool:
        """Whether every node has so many cores, where the hardware is known."""
        return all(host.cores >= int(count) for host in self.hosts)

    @property
    def weakest(self) -> "Device | None":
        """The NVIDIA device of the lowest compute capability, or else any device; None: unknown."""
        known = [each for each in self.devices.values() if each.compute_capability]
        lowest = min(known, key=lambda each: each.compute_capability or (0, 0), default=None)
        return lowest or next(iter(self.devices.values()), None)


@cached()
def split_requirement(requirement: str) -> tuple[str, Releases]:
    """`deepspeed>=0.19.6` as a name and a range; a bare name has the empty range."""
    at = next((i for i, letter in enumerate(requirement) if letter in "<>=!~"), len(requirement))
    return requirement[:at].strip(), Releases(requirement[at:])


def releases(
    targets: Mapping[str, Target], environment: Environment
) -> Iterable[tuple[str, Release]]:
    """Each package's release: the named one, else what goes with the named ones, else the newest.

    DeepSpeed's own table and the trainer's companions give the packages; a package that somebody
    names, and that no table speaks of, is taken at its word.
    """
    named, found = environment.software, dict[str, Release]()
    for target in targets.values():
        own = Package(target.supported, target.releases or (target.latest,))
        found.setdefault(target.package, _release(target.package, own, named, target.latest))
        usual = target.companions(found[target.package].version)
        for name, package in target.beside.items():
            found.setdefault(
                name, _release(name, package, named, usual.get(name) or package.latest)
            )
    for name in named.keys() - found.keys():
        found[name] = Release(name, Version(named[name]), is_named=True)
    return found.items()


def _release(name: str, package: Package, named: Mapping[str, str], otherwise: str) -> Release:
    if name in named:
        try:
            return Release(name, package.release(named[name]), is_named=True)
        except ValueError:  # InvalidVersion is one; so is a number of too many digits
            pass
    return Release(name, package.release(otherwise), is_named=False)


class Unusable(ValueError):
    """A word of the surroundings leads nowhere; the message says which and why."""


class Faulty(Exception):
    """A file that describes the surroundings is wrong: its faults, and its text by its name."""

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
    """Resolve what is named: hardware and model as in a spec, readers as `NAME[@VERSION]`.

    A version in `software` wins over one in `readers`, that over the hardware's own. A model that
    the catalogue does not have is known by its name alone. Raises Unusable for any other name, or
    a version, that leads nowhere, Faulty for a file of hardware or of a model that is wrong.
    """
    if world is not None and world < 1:
        raise Unusable(f"a run has at least 1 process, not {world}")
    named = [each.partition("@") for each in readers]
    by_reader = {_target(name, targets).package: v for name, _, v in named if v}
    cluster = _cluster(hardware)
    own = dict(cluster.software) if cluster else {}
    versions = {**own, **by_reader, **(software or {})}
    _check_versions(versions)
    from tunec.compiler.resolve import devices_of

    return Environment(
        cluster=cluster,
        devices=devices_of(cluster) if cluster else {},
        world=world,
        model=_model(model),
        model_name=model,
        software=versions,
        readers=tuple(_target(name, targets).name for name, _, _ in named),
        allow_outside=allow_outside,
    )


def _target(name: str, targets: Mapping[str, Target]) -> Target:
    if name not in targets:
        hint = did_you_mean(nearest(name, targets)) or f"there are {joined(targets, 'and')}"
        raise Unusable(f"no reader of configs is called {name!r}; {hint}")
    return targets[name]


def _check_versions(versions: Mapping[str, str]) -> None:
    for package, text in versions.items():
        meant = meant_program(package)
        if meant is not None:
            raise Unusable(f"no program is called {package!r}; {did_you_mean([meant])}")
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
