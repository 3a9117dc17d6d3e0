"""The hardware catalogue: devices and clusters by name, each read from its own file, once.

`index.json` says which file a name is in, so that finding one device reads no other. It is
generated: `python -m tunec.schemas.hardware.catalogue` writes it, with `--check` it only compares.

Besides the files in `clusters/`, two forms of name are built when asked for:

- `<device>-x<N>` and `<device>-x<N>-n<M>`: N devices on each of M nodes, whose host and network are
  the assumptions of `assumptions.yaml`, and say so in the cluster's notes;
- `<cluster>-n<M>`: M nodes of a one-node cluster that has a file.

`8x V100 32G`, as people write it, is `v100-32g-x8`.

A file of the same name wins, whichever alias of the device the name uses.
"""

import json
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import Field

from tunec.schemas.frozen import dataclass
from tunec.schemas.hardware.profile import (
    Cluster,
    Device,
    Link,
    Network,
)
from tunec.schemas.shape import Shape
from tunec.schemas.units import Bytes, Rate

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HERE: Final = Path(__file__).parent
_INDEX: Final = "index.json"
_SILENT_WORDS: Final = frozenset(
    {"nvidia", "geforce", "tesla", "amd", "instinct", "intel", "huawei"}
)
"""Words of a driver's device name that people leave out."""
_DERIVED: Final = re.compile(r"(.+?)(?:-x([1-9]\d{0,2}))?(?:-n([1-9]\d{0,4}))?")
"""A name built from a device or a cluster: the base, up to 999 devices a node, 99,999 nodes."""
_NEGATIVE: Final = re.compile(r"-[xn]-\d")
"""`p100-x-1` asks for less than one device, and is no spelling of `p100-x1`."""
_COUNTED: Final = re.compile(r"([1-9]\d{0,2}) ?x ?([a-z0-9].*)")
"""A name with the number of devices in front: `8xh100-sxm`, `8 x h100-sxm`."""


class UnknownName(KeyError):
    """A name that the catalogue does not have.

    `known` holds the names that would have been found, aliases included.
    """

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(name)
        self.name = name
        self.known = tuple(known)

    @property
    def near(self) -> tuple[str, ...]:
        """The known names most like this one, best first, each in one spelling."""
        from difflib import get_close_matches

        found = get_close_matches(self.name.lower(), self.known, n=9)
        once = {_spelled(word): word for word in reversed(found)}
        return tuple(dict.fromkeys(word for word in found if word in once.values()))[:3]

    def __str__(self) -> str:
        return f"{self.name!r} is not in the hardware catalogue"


class Assumption(Shape):
    """What is assumed about the machine around a device of which only the name is given."""

    devices: tuple[str, ...] = Field(min_length=1)
    """Names of the devices that it holds for."""
    memory: Bytes
    """Host RAM for each device."""
    cores: int = Field(ge=1)
    """Physical CPU cores for each device."""
    memory_bandwidth: Rate
    """Bytes per second of host memory for each device."""
    network: Network
    """What joins such nodes, for a whole node."""
    source: str
    """The machine that the numbers are taken from."""


@dataclass(frozen=True, slots=True)
class _Index:
    devices: dict[str, str]
    """Every name and alias of a device, and the name that its file has."""
    clusters: tuple[str, ...]


def device(name: str) -> Device:
    """Return the device of a name, an alias or a driver's device name; raise UnknownName."""
    found = _device_named(name)
    if found is None:
        raise UnknownName(name, tuple(_index().devices))
    return _device(found)


@lru_cache(maxsize=2048)
def cluster(name: str) -> Cluster:
    """Return the cluster of a name, from its file or built from its parts; raise UnknownName."""
    if _NEGATIVE.search(name.lower()):
        raise UnknownName(name, _buildable("1", None))
    found = _cluster_spellings().get(_spelled(name))
    return _cluster(found) if found else _built(name.strip())


def device_names() -> tuple[str, ...]:
    """List the devices that have a file, by name."""
    return tuple(sorted(set(_index().devices.values())))


def cluster_names() -> tuple[str, ...]:
    """List the clusters that have a file, by name."""
    return _index().clusters


def assumption(device_name: str) -> Assumption:
    """Return what is assumed about the machine around a device, given by its catalogue name."""
    return next(row for row in _assumptions() if device_name in row.devices)


@lru_cache(maxsize=2048)
def _built(name: str) -> Cluster:
    counted = _COUNTED.fullmatch(name.lower())
    name = f"{counted[2]}-x{counted[1]}" if counted else name
    match = _DERIVED.fullmatch(name.lower())
    base, count, nodes = match.groups() if match else (name, None, None)
    sized = f"{base}-x{count}" if count else base
    model = _device_named(base) if count else None
    owner = _file_of(sized, _device(model) if model else None, count)
    if owner:
        return _repeated(_cluster(owner), int(nodes or 1))
    if model is None or count is None:
        raise UnknownName(name, _buildable(count or "1", nodes))
    return _assumed(_device(model), int(count), int(nodes or 1), re.sub(r"\s+", "-", name.lower()))


def _file_of(name: str, model: Device | None, count: str | None) -> str | None:
    """Find the cluster file that a name means, also where it calls the device by another name."""
    words = (model.name, *model.aliases) if model else ()
    spellings = (_spelled(each) for each in (name, *(f"{word}-x{count}" for word in words)))
    return next(
        (_cluster_spellings()[each] for each in spellings if each in _cluster_spellings()), None
    )


def _buildable(count: str, nodes: str | None) -> tuple[str, ...]:
    tail = f"-n{nodes}" if nodes else ""
    clusters = (f"{stem}{tail}" for stem in _index().clusters)
    return (*clusters, *(f"{word}-x{count}{tail}" for word in _index().devices))


def _repeated(one: Cluster, nodes: int) -> Cluster:
    if nodes == 1:
        return one
    name = f"{one.name}-n{nodes}"
    if one.node_count > 1:
        raise UnknownName(name, _index().clusters)
    facts = one.model_dump() | {"name": name, "title": f"{nodes} nodes: {one.title}"}
    facts["nodes"][0]["count"] = nodes
    if one.price_per_hour is not None:
        facts["price_per_hour"] = nodes * one.price_per_hour
    if one.network is None:
        row = assumption(device(one.nodes[0].accelerators[0].device).name)
        facts["network"] = row.network
        facts["sources"] |= {"network": f"assumed: {row.source}"}
        facts["notes"] += (f"network assumed: {row.source}",)
    return Cluster.model_validate(facts)


def _assumed(model: Device, count: int, nodes: int, name: str) -> Cluster:
    row = assumption(model.name)
    link = _wired(model, count)
    wiring = f"link: that of {model.name}" if link else "link: PCIe and the host"
    host = {
        "memory": row.memory * count,
        "cores": row.cores * count,
        "memory_bandwidth": row.memory_bandwidth * count,
    }
    group = {"device": model.name, "count": count}
    node = {"count": nodes, "accelerators": (group,), "link": link, "host": host}
    # as one document: each shape that is made by itself would build a validator of its own
    return Cluster.model_validate(
        {
            "name": name,
            "title": f"{nodes} x {count} {model.title}" if nodes > 1 else f"{count} {model.title}",
            "nodes": (node,),
            "network": row.network if nodes > 1 else None,
            "sources": _assumed_sources(row, link, nodes),
            "notes": (
                f"host assumed, for each device: {row.source}",
                *([f"network assumed: {row.source}"] if nodes > 1 else []),
                wiring,
            ),
        }
    )


def _wired(model: Device, count: int) -> Link | None:
    """A baseboard wires its modules; whether cards carry a bridge, their name does not say."""
    return model.link if model.form_factor != "pcie" and count > 1 else None


def _assumed_sources(row: Assumption, link: Link | None, nodes: int) -> dict[str, str]:
    found = {
        "nodes[0].accelerators": "the name of the cluster",
        "nodes[0].host": f"assumed: {row.source}",
    }
    if link:
        found["nodes[0].link"] = "the device's own fastest link"
    if nodes > 1:
        found["network"] = f"assumed: {row.source}"
    return found


@lru_cache(maxsize=1024)
def _device(stem: str) -> Device:
    return Device.model_validate(_yaml("devices", f"{stem}.yaml"))


@lru_cache(maxsize=1024)
def _cluster(stem: str) -> Cluster:
    return Cluster.model_validate(_yaml("clusters", f"{stem}.yaml"))


@lru_cache
def _assumptions() -> tuple[Assumption, ...]:
    return tuple(Assumption.model_validate(row) for row in _yaml("assumptions.yaml"))


@lru_cache
def _index() -> _Index:
    read = json.loads(_text(_INDEX))
    return _Index(read["devices"], tuple(read["clusters"]))


def _device_named(name: str) -> str | None:
    """The name of a device's file by one of its names; other spellings only where none is it."""
    return _index().devices.get(name.lower()) or _device_spellings().get(_spelled(name))


@lru_cache
def _device_spellings() -> dict[str, str]:
    return {_spelled(word): stem for word, stem in _index().devices.items()}


@lru_cache
def _cluster_spellings() -> dict[str, str]:
    return {_spelled(stem): stem for stem in _index().clusters}


@lru_cache(maxsize=4096)
def _spelled(name: str) -> str:
    """Reduce a name to what tells it apart: `NVIDIA A100-SXM4-80GB` and `a100-sxm4-80g` agree."""
    words = [word for word in re.split(r"[\s._-]+", name.lower()) if word not in _SILENT_WORDS]
    return "".join(re.sub(r"^(\d+)gi?b$", r"\1g", word) for word in words)


def _text(*parts: str) -> str:
    return _HERE.joinpath(*parts).read_text("utf-8")


def _yaml(*parts: str) -> Any:
    return yaml.load(_text(*parts), Loader=_LOADER)  # noqa: S506 - a safe loader, in C if it is there


def _stems(kind: str) -> list[str]:
    found = (entry.name for entry in (_HERE / kind).iterdir())
    return sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml"))


def build_index() -> str:
    """Read every device and return the text that `index.json` should have.

    Raises ValueError if two devices claim one name.
    """
    words: dict[str, str] = {}
    owners: dict[str, str] = {}
    for model in map(_device, _stems("devices")):
        for word in (model.name, *model.aliases, model.title.lower()):
            if owners.setdefault(_spelled(word), model.name) != model.name:
                raise ValueError(f"{word!r} names both {owners[_spelled(word)]} and {model.name}")
            words[word] = model.name
    return json.dumps({"devices": words, "clusters": _stems("clusters")}, indent=1) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the index, or with `--check` say by the exit status whether it is up to date."""
    asked = list(sys.argv[1:] if arguments is None else arguments)
    if asked not in ([], ["--check"]):
        sys.stderr.write("usage: python -m tunec.schemas.hardware.catalogue [--check]\n")
        return 2
    fresh = build_index()
    if asked:
        return 0 if _text(_INDEX) == fresh else 1
    (_HERE / _INDEX).write_text(fresh, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
