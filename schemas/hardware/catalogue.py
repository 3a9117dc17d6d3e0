"""The hardware catalogue: devices and clusters by name, each read from its own file, once.

Besides the files in `clusters/` and the rows of `families.yaml`, two forms of name are built when
asked for:

- `<device>-x<N>` and `<device>-x<N>-n<M>`: N devices on each of M nodes, whose host and network are
  assumed to be those of the device's `machine` in `machines.yaml`, as the cluster's notes say;
- `<cluster>-n<M>`: M nodes of a one-node cluster that has a file or a row.

`8x V100 32G`, `8 V100 32GB`, `V100-32G:8` and `V100 32GBx8`, as people write it, are `v100-32g-x8`.

A file of the same name wins, whichever alias of the device the name uses.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tunec.schemas.caches import cached
from tunec.schemas.entries import BrokenEntry, heads, listed, names_in, read_entry, read_file
from tunec.schemas.hardware.families import sized, sized_names
from tunec.schemas.hardware.profile import Cluster, Device, Link, Machine, Machines
from tunec.schemas.hardware.shared_facts import completed
from tunec.schemas.source import Path as Place

_HERE: Final = Path(__file__).parent
_DEVICES: Final = _HERE / "devices"
_CLUSTERS: Final = _HERE / "clusters"
_MACHINES: Final = _HERE / "machines.yaml"
_TWICE: Final = "leave it to one of the two: a name stands for one device"
_SILENT_WORDS: Final = frozenset(
    {"nvidia", "geforce", "tesla", "amd", "instinct", "intel", "huawei"}
)
"""Words of a driver's device name that people leave out."""
_BREAKS: Final = re.compile(r"[\s._-]+")
_GIGABYTES: Final = re.compile(r"^(\d+)gi?b$")
_DERIVED: Final = re.compile(r"(.+?)(?:[-\s]x ?([1-9]\d{0,2}))?(?:[-\s]n ?([1-9]\d{0,4}))?")
"""A name built from a device or a cluster: the base, up to 999 devices a node, 99,999 nodes."""
_NUMBER: Final = re.compile(r"\d{3,}")
"""What tells a maker's models apart: `4080`."""
_NEGATIVE: Final = re.compile(r"-[xn]-\d")
"""`p100-x-1` requests less than one device, and is not a spelling of `p100-x1`."""
_COUNTED: Final = re.compile(r"([1-9]\d{0,2})(?: ?[x*] ?| +)([a-z0-9].*)")
"""A name with the number of devices in front: `8xh100-sxm`, `8 x h100-sxm`, `8 h100-sxm`."""
_JOINED: Final = re.compile(r"(.+?)(?: ?: ?|x)([1-9]\d{0,2})")
"""A device followed directly by its count: `h100:8` as in SkyPilot, `h100x8`."""
_OF_NODES: Final = re.compile(
    r"([1-9]\d{0,4}) ?(?:x|\*|nodes?(?: of| with| x)?) ?([1-9]\d{0,2}) ?[x*]? ?([a-z][a-z0-9 ._-]*)"
)
"""A number of nodes in front: `2 nodes of 8 H100`, `2x8 H100`."""


_UNSUPPORTED: Final = {
    "cpu": "a CPU",
    "mps": "Apple's GPU",
    "xpu": "Intel's GPU",
    "tpu": "a TPU",
    "neuron": "a Trainium device",
}
"""Names that torch and XLA give devices for which there is no memory account."""
_UNSUPPORTED_NAME: Final = re.compile(
    r"(cpu|mps|xpu|tpu|neuron)(?:[-:][\w-]*|\d\w*)?"
    r"|(?:apple[- ]?)?m[1-9](?:[- ]?(?:pro|max|ultra))?"
)


def unsupported(name: str) -> str | None:
    """The unsupported device that a name means, such as `cpu` or `m3-max`; None: no such device."""
    match = _UNSUPPORTED_NAME.fullmatch(_stem(name.strip().lower()))
    return _UNSUPPORTED[match[1] or "mps"] if match else None


def no_account_of(what: str) -> str:
    """Why a device of some kind is not supported."""
    return f"tunec accounts for the memory of NVIDIA, AMD, Gaudi and Ascend devices, not of {what}"


def as_another(name: str, memory: str) -> str:
    """What a cluster's file says of a device that has no file: another one, with its own memory."""
    group = f"{{device: {name}, memory: {memory}}}"
    return f"nodes: [{{accelerators: [{group}], host: {{memory: 64GiB, cores: 8}}}}]"


def _most_alike(asked: str, known: Sequence[str]) -> Sequence[str]:
    """Similar names, only those of the same model where there are any: `4080` of `4080-supr`."""
    from difflib import get_close_matches

    found = get_close_matches(asked, known, n=30)
    numbers = set(_NUMBER.findall(asked))
    return [word for word in found if numbers & set(_NUMBER.findall(word))] or found


def _hyphened(name: str) -> str:
    """A name as the catalogue writes names: `1x NVIDIA RTX 3050` is `rtx-3050-x1`."""
    words = _behind(name.strip().lower()).split()
    return "-".join(word for word in words if word not in _SILENT_WORDS)


def _stem(name: str) -> str:
    """A name without the number of devices and nodes."""
    counted = _COUNTED.fullmatch(name)
    match = _DERIVED.fullmatch(counted[2] if counted else name)
    return match[1] if match else name


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
        """The known names most similar to this one, best first, each in one spelling."""
        if unsupported(self.name) is not None:
            return ()
        if self.uncounted is not None:
            return tuple(f"{self.uncounted}-x{count}" for count in (1, 8))
        several = _OF_NODES.fullmatch(self.name.strip().lower())
        if several and _device_named(several[3].strip()):
            nodes, count, model = several.groups()
            return (f"{_device_named(model.strip())}-x{count}-n{nodes}",)
        asked = _spelled(_stem(self.name.strip().lower()))
        longer = [
            each for each in self.known if len(asked) > 3 and _spelled(each).startswith(asked)
        ]
        found = longer or _most_alike(_hyphened(self.name), self.known)
        once = {_spelled(word): word for word in reversed(found)}
        return tuple(dict.fromkeys(word for word in found if word in once.values()))[:3]

    @property
    def device(self) -> str | None:
        """The device that is most similar to the one that a name seems to mean."""
        found = (_device_named(_stem(each)) for each in self.near)
        return next(filter(None, found), None)

    @property
    def uncounted(self) -> str | None:
        """The device that a name means, if the name gives no count."""
        word = re.sub(r"\s+", "-", self.name.strip().lower())
        found = _device_named(word)
        return word if found and word in _device_words() else found

    def __str__(self) -> str:
        what = unsupported(self.name)
        if what is not None:
            return f"{self.name!r} is not supported: {no_account_of(what)}"
        if self.uncounted is not None:
            return f"{self.name!r} is a device, without a count"
        return f"{self.name!r} is not in the hardware catalogue"


def device(name: str) -> Device:
    """Return the device of a name, an alias or a driver's device name; raise UnknownName."""
    found = _device_named(name)
    if found is None:
        raise UnknownName(name, tuple(_device_words()))
    return _device(found)


@cached(2048, lasting=True)
def cluster(name: str) -> Cluster:
    """Return the cluster of a name, from its file or built from its parts; raise UnknownName."""
    if _NEGATIVE.search(name.lower()):
        raise UnknownName(name, _buildable("1", None))
    own = name.lower().removeprefix("standard_")
    found = own if own in names_in(_CLUSTERS) else _cluster_spellings().get(_spelled(own))
    return _cluster(found) if found else _built(name.strip())


def device_names() -> tuple[str, ...]:
    """List the devices that have a file, by name."""
    return names_in(_DEVICES)


def cluster_names() -> tuple[str, ...]:
    """List the clusters that have a file or a row of a family, by name."""
    return _cluster_names()


def hardware_names() -> tuple[str, ...]:
    """List the suggestions for `hardware`: the clusters, and each device by 1, 2, 4 and 8.

    Any other number works too.
    """
    built = (f"{name}-x{count}" for name in device_names() for count in (1, 2, 4, 8))
    return (*cluster_names(), *built)


def machine(of: Device) -> Machine:
    """Return the assumed host of a device; raise BrokenEntry."""
    known = _machines()
    if of.machine in known:
        return known[of.machine]
    raise BrokenEntry(
        _DEVICES / f"{of.name}.yaml",
        f"no machine is called `{of.machine}`",
        ("machine",),
        f"name one of {_MACHINES.name}, or add it there: {', '.join(known)}",
    )


def _built(written: str) -> Cluster:
    name = _behind(written.lower())
    match = _DERIVED.fullmatch(name.lower())
    base, count, nodes = match.groups() if match else (name, None, None)
    sized = f"{base}-x{count}" if count else base
    model = _device_named(base) if count else None
    owner = _file_of(sized, _device(model) if model else None, count)
    if owner:
        return _repeated(_cluster(owner), int(nodes or 1))
    if model is None or count is None:
        raise UnknownName(written, _buildable(count or "1", nodes))
    return _assumed(_device(model), int(count), int(nodes or 1), re.sub(r"\s+", "-", name.lower()))


def _behind(name: str) -> str:
    """A name with its count moved to the end, as the catalogue writes it."""
    if counted := _COUNTED.fullmatch(name):
        return f"{counted[2]}-x{counted[1]}"
    usual, joined = _DERIVED.fullmatch(name), _JOINED.fullmatch(name)
    if (usual and usual[2]) or not joined or _device_named(joined[1]) is None:
        return name
    return f"{joined[1]}-x{joined[2]}"


def _file_of(name: str, model: Device | None, count: str | None) -> str | None:
    """Find the cluster file that a name means, also by another name of its device."""
    words = (model.name, *model.aliases) if model else ()
    spellings = (_spelled(each) for each in (name, *(f"{word}-x{count}" for word in words)))
    return next(
        (_cluster_spellings()[each] for each in spellings if each in _cluster_spellings()), None
    )


def _buildable(count: str, nodes: str | None) -> tuple[str, ...]:
    tail = f"-n{nodes}" if nodes else ""
    clusters = (f"{stem}{tail}" for stem in cluster_names())
    return (*clusters, *(f"{word}-x{count}{tail}" for word in _device_words()))


def _repeated(one: Cluster, nodes: int) -> Cluster:
    if nodes == 1:
        return one
    name = f"{one.name}-n{nodes}"
    if one.node_count > 1:
        raise UnknownName(name, cluster_names())
    facts = one.model_dump() | {"name": name, "title": f"{nodes} nodes: {one.title}"}
    facts["nodes"][0]["count"] = nodes
    if one.price_per_hour is not None:
        facts["price_per_hour"] = nodes * one.price_per_hour
    if one.network is None:
        around = machine(device(one.nodes[0].accelerators[0].device))
        facts["network"] = around.network
        facts["sources"] |= {"network": f"assumed: {around.source}"}
        facts["notes"] += (f"network assumed: {around.source}",)
    return Cluster.model_validate(facts)


def _assumed(model: Device, count: int, nodes: int, name: str) -> Cluster:
    around = machine(model)
    link = _wired(model, count)
    wiring = f"link: that of {model.name}" if link else "link: PCIe and the host"
    host = {
        "memory": around.memory * count,
        "cores": around.cores * count,
        "memory_bandwidth": around.memory_bandwidth * count,
    }
    group = {"device": model.name, "count": count}
    node = {"count": nodes, "accelerators": (group,), "link": link, "host": host}
    # as one document: each shape that is made by itself would build a validator of its own
    return Cluster.model_validate(
        {
            "name": name,
            "title": f"{nodes} x {count} {model.title}" if nodes > 1 else f"{count} {model.title}",
            "nodes": (node,),
            "network": around.network if nodes > 1 else None,
            "sources": _assumed_sources(around, link, nodes),
            "notes": (
                f"host assumed, for each device: {around.source}",
                *([f"network assumed: {around.source}"] if nodes > 1 else []),
                wiring,
            ),
        }
    )


def _wired(model: Device, count: int) -> Link | None:
    """The link between a baseboard's modules; a card's name does not show whether it has one."""
    return model.link if model.form_factor != "pcie" and count > 1 else None


def _assumed_sources(around: Machine, link: Link | None, nodes: int) -> dict[str, str]:
    found = {
        "nodes[0].accelerators": "the name of the cluster",
        "nodes[0].host": f"assumed: {around.source}",
    }
    if link:
        found["nodes[0].link"] = "the device's own fastest link"
    if nodes > 1:
        found["network"] = f"assumed: {around.source}"
    return found


@cached()
def _device(name: str) -> Device:
    return read_entry(_DEVICES, name, Device, completed)


@cached()
def _cluster_names() -> tuple[str, ...]:
    return tuple(sorted((*names_in(_CLUSTERS), *sized_names())))


@cached()
def _cluster(name: str) -> Cluster:
    if name not in names_in(_CLUSTERS):
        return sized(name)
    found = read_entry(_CLUSTERS, name, Cluster)
    for n, node in enumerate(found.nodes):
        for a, group in enumerate(node.accelerators):
            if _device_named(group.device) is None:
                place = ("nodes", n, "accelerators", a, "device")
                raise _no_device(_CLUSTERS / f"{name}.yaml", group.device, place)
    return found


def _no_device(file: Path, name: str, place: Place) -> BrokenEntry:
    near = UnknownName(name, tuple(_device_words())).near
    remedy = f"name one of {_DEVICES.name}, or add it there"
    remedy = f"{remedy}: {', '.join(near)}" if near else remedy
    return BrokenEntry(file, f"no device is called `{name}`", place, remedy)


@cached()
def _machines() -> Mapping[str, Machine]:
    return read_file(_MACHINES, Machines).machines


@cached(256)
def _device_words(word: str = "") -> dict[str, str]:
    """Every name, alias and title of a device, with the name of its file.

    With a word, only of devices that may have it. Raises BrokenEntry if two claim one name.
    """
    words: dict[str, str] = {}
    for name, head in heads(_DEVICES, ("title", "aliases"), word).items():
        for place, each in _claims(name, head):
            if words.setdefault(each, name) != name:
                reason = f"`{each}` names {words[each]} already"
                raise BrokenEntry(_DEVICES / f"{name}.yaml", reason, place, _TWICE)
    return words


def _claims(name: str, head: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    yield ("name",), name
    yield from ((("aliases", n), word) for n, word in enumerate(listed(head, "aliases")))
    yield ("title",), str(head.get("title", name)).lower()


def _device_named(name: str) -> str | None:
    """The name of a device's file by one of its names; other spellings only if none matches."""
    word = name.lower()
    if word in device_names():
        return word
    return _device_words(word).get(word) or _device_spellings().get(_spelled(name))


@cached()
def _device_spellings() -> dict[str, str]:
    return {_spelled(word): name for word, name in _device_words().items()}


@cached()
def _cluster_spellings() -> dict[str, str]:
    return {_spelled(name): name for name in cluster_names()}


@cached(4096, lasting=True)
def _spelled(name: str) -> str:
    """Reduce a name to what distinguishes it: `NVIDIA A100-SXM4-80GB` and `a100-sxm4-80g` agree."""
    words = [word for word in _BREAKS.split(name.lower()) if word not in _SILENT_WORDS]
    return "".join(_GIGABYTES.sub(r"\1g", word) if word[-1:] == "b" else word for word in words)
