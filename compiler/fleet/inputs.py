"""What each pair of a fleet is made from: specs read once, and digests of all that goes in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from packaging.version import Version

from tunec.compiler.fleet.lock import Inputs
from tunec.compiler.fleet.selection import Selection, Site
from tunec.compiler.frontend.load import Loaded, load_spec
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Target
from tunec.compiler.version import __version__
from tunec.schemas.hardware.catalogue import UnknownName, device
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.models.catalogue import UnknownName as UnknownModel
from tunec.schemas.models.catalogue import card
from tunec.schemas.source import Span
from tunec.schemas.spec import Spec

_FLEET: Final = "<fleet>"
"""Where a diagnostic says the hardware comes from."""


def digest(*texts: str) -> str:
    """Sixteen hexadecimal digits for some texts."""
    return sha256("\0".join(texts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads what pairs are made from, each file once; for the life of one process."""

    selection: Selection
    policies: str
    """Digest of the policy files."""
    _specs: dict[tuple[str, tuple[str, ...]], Loaded] = field(default_factory=dict)
    _models: dict[str, str] = field(default_factory=dict)
    _clusters: dict[str, str] = field(default_factory=dict)

    def loaded(self, spec: str, site: Site) -> Loaded:
        """A spec for a cluster, with what the fleet file lays over it.

        It is read for some cluster and then moved to others, unless there are faults, whose places
        come from reading.
        """
        overrides = self.selection.overrides(spec, site)
        file = self.selection.specs[spec]
        key = (spec, overrides)
        if key not in self._specs:
            self._specs[key] = load_spec(file, overrides, site.hardware)
        found = self._specs[key]
        if found.spec is None or site.cluster is None:
            return load_spec(file, overrides, site.hardware)
        return _moved(found, found.spec, site, site.cluster)

    def inputs(self, spec: str, site: Site, loaded: Loaded, asked: tuple[Asked, ...]) -> Inputs:
        """The digests of a pair."""
        return Inputs(
            spec=digest(*(f"{name}:{content}" for name, content in self._files(spec, loaded))),
            cluster=self._cluster(site),
            model=self._model(loaded.spec),
            overrides=digest(*self.selection.overrides(spec, site)),
            tunec=__version__,
            targets=tuple(sorted(_dialects(asked, _versions(loaded)))),
            policies=self.policies,
        )

    def _files(self, spec: str, loaded: Loaded) -> tuple[tuple[str, str], ...]:
        """Files of a spec; one that cannot be read has no digest, but its faults."""
        return loaded.files or ((spec, digest(*(each.message for each in loaded.diagnostics))),)

    def _cluster(self, site: Site) -> str:
        if site.name not in self._clusters:
            self._clusters[site.name] = digest(*_texts(site.cluster)) if site.cluster else ""
        return self._clusters[site.name]

    def _model(self, spec: Spec | None) -> str:
        name = spec.model if spec and isinstance(spec.model, str) else ""
        if name not in self._models:
            self._models[name] = _card(name)
        return self._models[name]


def _moved(loaded: Loaded, spec: Spec, site: Site, cluster: Cluster) -> Loaded:
    """The same spec on another cluster: its name where the catalogue has it, else itself."""
    hardware = site.hardware if site.is_catalogued else cluster
    text = f"hardware: {site.hardware}"
    place = Span(_FLEET, 1, len("hardware: ") + 1, 1, len(text) + 1)
    return replace(
        loaded,
        spec=spec.model_copy(update={"hardware": hardware}),
        cluster=cluster,
        spans={**loaded.spans, ("hardware",): place},
        sources={**loaded.sources, _FLEET: text},
    )


def _texts(cluster: Cluster) -> Iterator[str]:
    yield cluster.model_dump_json()
    for node in cluster.nodes:
        for group in node.accelerators:
            try:
                yield device(group.device).model_dump_json()
            except UnknownName:
                yield group.device


def _card(name: str) -> str:
    """Digest of a catalogue entry; a config that a spec names is among the spec's own files."""
    try:
        return digest(card(name).model_dump_json())
    except UnknownModel:
        return ""


def _versions(loaded: Loaded) -> Mapping[str, str]:
    """Consumer versions as gather joins them: the spec's own over the cluster's."""
    cluster = loaded.cluster.software if loaded.cluster else {}
    return {**cluster, **(loaded.spec.software if loaded.spec else {})}


def _dialects(asked: tuple[Asked, ...], software: Mapping[str, str]) -> Iterator[str]:
    for target, version in asked:
        yield " ".join(_dialect(target, version, software))


def _dialect(target: Target, version: Version, software: Mapping[str, str]) -> Iterator[str]:
    yield f"{target.name}@{version}"
    for name, found in sorted(target.dialect(version, software).items()):
        if name and name != target.package:
            yield f"{name}={found}"
