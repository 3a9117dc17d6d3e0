"""The sides that `tunec diff` compares: spec files on some hardware, or the pairs of a fleet."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.fleet.inputs import Reader
from tunec.compiler.fleet.selection import Selection, select
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.review.sides import Side

_OWN = ""
"""The hardware that a spec itself names."""


class Specs(Protocol):
    """Specs by name, each on some clusters."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the specs."""
        ...

    @property
    def clusters(self) -> Sequence[str]:
        """The clusters that they are planned for; the same for all of them."""
        ...

    @property
    def targets(self) -> Sequence[str]:
        """The targets that the side names; empty: each spec's own targets."""
        ...

    def read(self, name: str) -> Loaded:
        """A spec as it is written."""
        ...

    def on(self, name: str, cluster: str) -> Loaded:
        """A spec for one of the clusters."""
        ...


class SpecFiles:
    """The specs of a directory, on the hardware of the command line or on their own."""

    targets: Sequence[str] = ()

    def __init__(self, side: Side, options: Namespace, targets: Sequence[str]) -> None:
        self._files = side.files
        self._overrides: Sequence[str] = options.overrides
        self._known = targets
        self._outside: bool = options.allow_outside
        self.names = tuple(side.files)
        self.clusters: Sequence[str] = options.hardware or [_OWN]

    def read(self, name: str) -> Loaded:
        """A spec as it is written, with the command line's overrides."""
        return self.on(name, _OWN)

    def on(self, name: str, cluster: str) -> Loaded:
        """A spec for one of the clusters."""
        hardware = cluster or None
        return load_spec(
            self._files[name],
            self._overrides,
            hardware,
            targets=self._known,
            allow_outside=self._outside,
        )


class FleetSpecs:
    """The pairs of a fleet."""

    def __init__(self, selection: Selection) -> None:
        self._reader = Reader(selection)
        self._sites = {site.name: site for site in selection.sites}
        self._selection = selection
        self.names = tuple(selection.specs)
        self.clusters = tuple(self._sites)
        self.targets = selection.fleet.targets

    def read(self, name: str) -> Loaded:
        """A spec as it is written, without the fleet file's overrides."""
        chosen = self._selection
        return load_spec(chosen.specs[name], allow_outside=chosen.allow_outside)

    def on(self, name: str, cluster: str) -> Loaded:
        """A spec for one of the clusters, with the fleet file's overrides."""
        return self._reader.loaded(name, self._sites[cluster])


class BadFleet(ValueError):
    """A fleet file cannot be read."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...], sources: Mapping[str, str]) -> None:
        super().__init__("the fleet file has faults")
        self.diagnostics = diagnostics
        self.sources = sources


def fleet_at(file: Path, *, allow_outside: bool) -> Selection:
    """The pairs that a fleet file selects. Raises BadFleet."""
    found = select(file, allow_outside=allow_outside)
    if found.selection is None:
        raise BadFleet(found.diagnostics, found.sources)
    return found.selection
