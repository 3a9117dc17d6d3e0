"""The inputs of each pair of a fleet: specs that are read once, and digests of all inputs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

from msgspec import Struct, field
from packaging.version import Version

from tunec.compiler.bundle import LAUNCH
from tunec.compiler.fleet.lock import Inputs, as_json, opening
from tunec.compiler.fleet.selection import Selection, Site
from tunec.compiler.frontend.load import Loaded, load_spec, moved
from tunec.compiler.frontend.measurements import SUFFIX
from tunec.compiler.requirements import Asked
from tunec.compiler.review.outcome import Pair
from tunec.compiler.target import Target
from tunec.compiler.version import __version__
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import UnknownName, device
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.models.catalogue import UnknownName as UnknownModel
from tunec.schemas.models.catalogue import card
from tunec.schemas.spec import Spec

_MARK: Final = "<the cluster's>"
"""Placeholder for a cluster's name and digest; no spec and no digest looks like it."""


def digest(*texts: str) -> str:
    """Sixteen hexadecimal digits computed from texts."""
    return sha256("\0".join(texts).encode()).hexdigest()[:16]


def _nobody(_names: Sequence[str], _loaded: Loaded) -> tuple[Asked, ...]:
    return ()


Asking = Callable[[Sequence[str], Loaded], tuple[Asked, ...]]
"""Resolves targets by name for a loaded spec; LookupError for an unknown name."""
_Key = tuple[str, tuple[str, ...]]
"""A spec, and the fleet file's overrides for it."""
_Software = tuple[tuple[str, str], ...]
"""The versions that a cluster has installed."""


class Reader(Struct, frozen=True):
    """Reads the inputs of pairs, each file once while the pairs of its spec follow."""

    selection: Selection
    asking: Asking = _nobody
    policies: str = ""
    """Digest of the policy files."""
    _specs: dict[_Key, Loaded] = field(default_factory=dict)
    _asked: dict[tuple[_Key, _Software], tuple[Asked, ...]] = field(default_factory=dict)
    _starters: dict[tuple[_Key, _Software], Asked] = field(default_factory=dict)
    _inputs: dict[tuple[_Key, _Software], Inputs] = field(default_factory=dict)
    _openings: dict[tuple[_Key, _Software], tuple[str, str, str]] = field(default_factory=dict)
    """The start of a line, around the cluster's name and its digest."""
    _clusters: dict[str, str] = field(default_factory=dict)

    def loaded(self, spec: str, site: Site) -> Loaded:
        """A spec for a cluster, with the fleet file's overrides.

        It is read for one cluster and then moved to others, unless it has faults, whose places come
        from reading.
        """
        key = (spec, self.selection.overrides(spec, site))
        found = self._read(key, site)
        if found.spec is None or site.cluster is None:
            return self._load(key, site)
        return _moved(found, site, site.cluster, self.selection.text)

    def asked(self, spec: str, site: Site) -> tuple[Asked, ...]:
        """The targets of a pair: those of the fleet file, or else the spec's own."""
        key = (spec, self.selection.overrides(spec, site)), _software(site)
        if key not in self._asked:
            loaded = self.loaded(spec, site)
            own = loaded.spec.targets if loaded.spec else ()
            self._asked[key] = self.asking(self.selection.fleet.targets or own, loaded)
        return self._asked[key]

    def starter(self, spec: str, site: Site) -> Asked:
        """The target that starts a pair's program on a machine, if none of its own targets does."""
        key = (spec, self.selection.overrides(spec, site)), _software(site)
        if key not in self._starters:
            (self._starters[key],) = self.asking((LAUNCH,), self.loaded(spec, site))
        return self._starters[key]

    def inputs(self, spec: str, site: Site) -> Inputs:
        """The digests of a pair, without planning it; nothing is read twice."""
        key = (spec, self.selection.overrides(spec, site))
        if self._read(key, site).spec is None or site.cluster is None:
            return self._made(key, site, self.loaded(spec, site))
        software = _software(site)
        if (key, software) not in self._inputs:
            self._inputs[key, software] = self._made(key, site, self.loaded(spec, site))
        return self._inputs[key, software].on(self._cluster(site))

    def opening(self, spec: str, site: Site) -> str:
        """The start of the line of a pair with these inputs, as `lock.opening` writes it."""
        key = (spec, self.selection.overrides(spec, site)), _software(site)
        if key not in self._openings:
            inputs = self.inputs(spec, site)
            if key not in self._inputs:
                return opening(Pair(spec, site.name), inputs)
            start, _, rest = opening(Pair(spec, _MARK), inputs.on(_MARK)).partition(_MARK)
            between, _, end = rest.partition(_MARK)
            self._openings[key] = start, between, end
        start, between, end = self._openings[key]
        return f"{start}{as_json(site.name)[1:-1]}{between}{self._cluster(site)}{end}"

    def _read(self, key: _Key, site: Site) -> Loaded:
        if key not in self._specs:
            if not any(known[0] == key[0] for known in self._specs):
                for each in (self._specs, self._asked, self._inputs, self._openings):
                    each.clear()
            self._specs[key] = self._load(key, site)
        return self._specs[key]

    def _load(self, key: _Key, site: Site) -> Loaded:
        chosen = self.selection
        found = load_spec(
            chosen.specs[key[0]],
            hardware=site.hardware,
            laid_over=key[1],
            targets=chosen.targets,
            allow_outside=chosen.allow_outside,
        )
        return replace(found, files=_own_files(found))

    def _made(self, key: _Key, site: Site, loaded: Loaded) -> Inputs:
        asked = self.asked(key[0], site)
        return Inputs(
            spec=digest(*(f"{name}:{content}" for name, content in _files(key[0], loaded))),
            cluster=self._cluster(site),
            model=_model(loaded.spec),
            overrides=digest(*key[1]),
            tunec=__version__,
            targets=tuple(sorted(_dialects(asked, loaded.software))),
            policies=self.policies,
        )

    def _cluster(self, site: Site) -> str:
        if site.name not in self._clusters:
            self._clusters[site.name] = digest(*_texts(site.cluster)) if site.cluster else ""
        return self._clusters[site.name]


def _software(site: Site) -> _Software:
    named = site.cluster.software if site.cluster else None
    return tuple(sorted(named.items())) if named else ()


def _own_files(loaded: Loaded) -> tuple[tuple[str, str], ...]:
    """Files of a spec but for the cluster that it was read for, which differs from pair to pair."""
    clusters = {path for path, found in loaded.followed.items() if isinstance(found, Cluster)}
    own = (each for each in loaded.files if each[0] not in clusters)
    return tuple(each for each in own if not each[0].endswith(SUFFIX))


def _files(spec: str, loaded: Loaded) -> tuple[tuple[str, str], ...]:
    """Files of a spec; for one that cannot be read, its faults take the place of its digest."""
    return loaded.files or ((spec, digest(*(each.message for each in loaded.diagnostics))),)


def _model(spec: Spec | None) -> str:
    return _card(spec.model) if spec and isinstance(spec.model, str) else ""


def _moved(loaded: Loaded, site: Site, cluster: Cluster, fleet: str) -> Loaded:
    """A loaded spec on another cluster, by name if the catalogue has the cluster, otherwise inline.

    Faults of the hardware point at its entry in the fleet file, whose text is given.
    """
    is_named = site.is_catalogued and cluster.measured is None
    hardware = site.hardware if is_named else cluster
    spans, sources = loaded.spans, loaded.sources
    if site.span is not None:
        spans = {**spans, ("hardware",): site.span}
        sources = {**sources, site.span.file: fleet}
    return replace(moved(loaded, hardware, cluster), spans=spans, sources=sources)


def _texts(cluster: Cluster) -> Iterator[str]:
    yield cluster.model_dump_json()
    if cluster.measured is not None:
        yield cluster.measured.model_dump_json()
    for node in cluster.nodes:
        for group in node.accelerators:
            try:
                yield device(group.device).model_dump_json()
            except UnknownName:
                yield group.device


@cached()
def _card(name: str) -> str:
    """Digest of a catalogue entry; a config that a spec names is one of the spec's own files."""
    try:
        return digest(card(name).model_dump_json())
    except UnknownModel:
        return ""


def _dialects(asked: tuple[Asked, ...], software: Mapping[str, str]) -> Iterator[str]:
    for target, version in asked:
        yield " ".join(_dialect(target, version, software))


def _dialect(target: Target, version: Version, software: Mapping[str, str]) -> Iterator[str]:
    yield f"{target.name}@{version}"
    for name, found in sorted(target.dialect(version, software).items()):
        if name and name != target.package:
            yield f"{name}={found}"
