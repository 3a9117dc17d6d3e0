"""The clusters that a spec is planned on: those of the catalogue, or names, files and folders."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.choose.options import Asking, option_of
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import Loaded, for_hardware, moved, with_settings
from tunec.compiler.frontend.measurements import with_measured
from tunec.compiler.requirements import Asked
from tunec.schemas.choice import Option
from tunec.schemas.hardware.catalogue import cluster, cluster_names

_FILES: Final = (".yaml", ".yml", ".json")

Loading = Callable[[str], Loaded]
"""Reads the spec for given hardware."""
Targets = Callable[[Loaded], Sequence[Asked]]
"""Returns the targets that a loaded spec is planned for."""


class Ground(Struct, frozen=True):
    """A loaded spec and the clusters on which it is planned."""

    loaded: Loaded
    names: tuple[str, ...] = ()
    """Names in the catalogue; if empty, the cluster for which the spec was read."""

    def settled(self, settings: Sequence[str]) -> "Ground":
        """The ground with more settings in the spec."""
        if not settings:
            return self
        return Ground(with_settings(self.loaded, settings), self.names)

    def each(self) -> Iterator[Loaded]:
        """The spec for each cluster."""
        if not self.names:
            yield self.loaded
        for name in self.names:
            found = with_measured(cluster(name), self.loaded.base).cluster
            yield moved(self.loaded, name if found.measured is None else found, found)


class Grounds(Struct, frozen=True):
    """All grounds of a spec, and the diagnostics of reading it for them."""

    grounds: tuple[Ground, ...]
    """Empty if the spec cannot be read for all of them."""
    said: tuple[tuple[Sequence[Diagnostic], Mapping[str, str]], ...] = ()
    """Diagnostics, each only once, with the texts that they point into."""

    def settled(self, settings: Sequence[str]) -> "Grounds":
        """The grounds with more settings in the spec."""
        return _read([each.settled(settings) for each in self.grounds]) if settings else self


def grounds(hardware: Sequence[str], loading: Loading) -> Grounds:
    """Read the spec once for the whole catalogue, or for each named cluster."""
    if not hardware:
        names = cluster_names()
        return _read((Ground(loading(names[0]), names),))
    first, *others = dict.fromkeys(file for name in hardware for file in _files(name))
    loaded = loading(first)
    if loaded.origin is None:  # the file itself cannot be read
        return _read([Ground(loaded)])
    return _read([Ground(loaded), *(Ground(for_hardware(loaded, each)) for each in others)])


def options(ground: Ground, asking: Asking, targets: Targets) -> Iterator[Option]:
    """The spec planned on each cluster of a ground, without looking for repairs."""
    asked = targets(ground.loaded)
    for loaded in ground.each():
        if loaded.cluster is None:
            continue
        own = targets(loaded) if loaded.cluster.software else asked
        yield option_of(plan(loaded, own, repairing=False), loaded.cluster, asking)


def _read(found: Sequence[Ground]) -> Grounds:
    """The grounds, or none if the spec cannot be read for one of them."""
    known: set[Diagnostic] = set()
    said = []
    for each in found:
        fresh = [one for one in each.loaded.diagnostics if one not in known]
        known.update(fresh)
        said.append((fresh, each.loaded.sources))
    is_whole = all(each.loaded.spec is not None for each in found)
    return Grounds(tuple(found) if is_whole else (), tuple(said))


def _files(name: str) -> Sequence[str]:
    """The cluster files of a folder; for anything else, the name itself."""
    folder = Path(name)
    if not folder.is_dir():
        return (name,)
    return sorted(str(each) for each in folder.iterdir() if each.suffix in _FILES) or (name,)
