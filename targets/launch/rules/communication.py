"""Variables of NCCL and gloo."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import launches, variable, variables
from tunec.compiler.lints.rule import Finding, rule

_FAST: Final = ("nvlink", "nvswitch")
_PEER: Final = {"NCCL_P2P_DISABLE": ("1",), "NCCL_P2P_LEVEL": ("loc", "0")}
_SHARED: Final = {"NCCL_SHM_DISABLE": ("1",)}
_FABRIC: Final = {"NCCL_IB_DISABLE": ("1",), "NCCL_NET": ("socket",)}


@rule(
    "warning",
    "slow",
    consumers=("torch",),
    reads=variables(*_PEER, *_SHARED, *_FABRIC),
    hardware=True,
)
def fast_link_turned_off(run: LintContext) -> Iterator[Finding]:
    """NCCL is configured not to use the fastest link of the hardware."""
    cluster = run.environment.cluster
    if cluster is None or cluster.device_count < 2:
        return
    links = [node.link.kind for node in cluster.nodes if node.link is not None]
    network = cluster.network
    for document in launches(run):
        fast = next((kind for kind in links if kind in _FAST), None)
        peer = _first_set(document, _PEER)
        if peer is not None and fast is not None:
            yield _fast_finding(peer, f"{fast} between the devices of a node")
        shared = _first_set(document, _SHARED)
        if shared is not None and (peer is not None or fast is None):
            yield _fast_finding(shared, "shared memory between the processes of a node")
        several = sum(node.count for node in cluster.nodes) > 1
        rdma = network.kind if network and network.kind in ("infiniband", "roce") else None
        fabric = _first_set(document, _FABRIC) if several and rdma is not None else None
        if fabric is not None:
            yield _fast_finding(fabric, f"{rdma} between the nodes")


def _first_set(document: Document, ways: Mapping[str, tuple[str, ...]]) -> Place | None:
    """The first of these variables that is set to one of its values."""
    for name, words in ways.items():
        place = variable(document, name)
        if place is not None and str(place.value).lower() in words:
            return place
    return None


def _fast_finding(place: Place, what: str) -> Finding:
    name = place.path.rpartition(".")[2]
    return Finding(
        f"{name}={place.value} leaves {what} unused",
        (place.label("turns it off"),),
        ("NCCL then goes through host memory or TCP, which is at least ten times slower",),
        "remove it: it is for cards without peer access and networks without RDMA",
    )


@rule("warning", "slow", consumers=("transformers",), reads=("trainer:ddp_backend",), hardware=True)
def gloo_between_devices(run: LintContext) -> Iterator[Finding]:
    """Processes with their own devices communicate by gloo, through host memory."""
    devices, world = run.environment.devices, run.value("parallel.world")
    if run.said("trainer", "use_cpu", "no_cuda") is not None or world == 1:
        return
    nvidia = [each.title for each in devices.values() if each.compute_capability]
    for place in run.each("trainer", "ddp_backend"):
        if place.value == "gloo" and (nvidia or not devices):
            whose = nvidia[0] if nvidia else "the devices"
            yield Finding(
                f"gradients of {whose} go through host memory by gloo",
                (place.label("for processors"),),
                (
                    "gloo copies each bucket to the host, sums it there, and copies it back",
                    "it is the backend for processors; NCCL reduces on the devices",
                ),
                "write nccl, or remove it: nccl is what devices get",
                Fix((place.replaced("nccl"),), "safe"),
                certain=bool(nvidia),
            )


_NUMBERS: Final = frozenset(
    {
        *("NCCL_P2P_DISABLE", "NCCL_P2P_DIRECT_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"),
        *("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_COLLNET_ENABLE", "NCCL_MNNVL_ENABLE"),
        *("NCCL_IGNORE_CPU_AFFINITY", "NCCL_NET_GDR_READ", "NCCL_NET_DISABLE_INTRA"),
        *("NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT", "NCCL_IB_TC", "NCCL_IB_SL"),
        *("NCCL_IB_QPS_PER_CONNECTION", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
        *("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_NTHREADS", "NCCL_CROSS_NIC"),
    }
)
_NUMBER: Final = re.compile(r"\s*[-+]?\d")
_NUMBER_SWITCHES: Final = ("_DISABLE", "_ENABLE", "_AFFINITY")
_NO: Final = ("", "false", "no", "off", "n", "f")
"""Words with the same effect as 0, the default."""


@rule("error", "silent", consumers=("nccl",), reads=variables(*sorted(_NUMBERS)))
def number_variable_in_words(run: LintContext) -> Iterator[Finding]:
    """A variable of NCCL that is read as a number has a word as its value."""
    seen = set[str]()
    for document in launches(run):
        for key, place in document.found.items():
            name = key.removeprefix("environment.")
            if name not in _NUMBERS or key == name or str(place.span) in seen:
                continue
            text = str(place.value)
            if not _NUMBER.match(text) and text.strip().lower() not in _NO:
                seen.add(str(place.span))
                yield _number_finding(place, name, text)


def _number_finding(place: Place, name: str, text: str) -> Finding:
    return Finding(
        f"{name}={text} is read as 0",
        (place.label("not a number"),),
        ("NCCL reads it with strtoll, which silently turns a word into 0",),
        f"write {name}=1" if name.endswith(_NUMBER_SWITCHES) else "write the intended number",
    )


_PEER_SWITCHES: Final = ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")
_WHY: Final = (
    "accelerate then stops with an error; `accelerate launch` sets both by itself, newer drivers "
    "need neither"
)


@rule("error", "init", consumers=("accelerate",), reads=("launch:launcher",), hardware=True)
def peer_access_on_rtx_40(run: LintContext) -> Iterator[Finding]:
    """RTX 40 cards without the variables that old drivers need."""
    devices = run.environment.devices.values()
    card = next((each for each in devices if "RTX 40" in each.title), None)
    cluster = run.environment.cluster
    if card is None or cluster is None or cluster.device_count < 2:
        return
    for document in launches(run, "torchrun", "deepspeed"):
        missing = [name for name in _PEER_SWITCHES if variable(document, name) is None]
        place = document.get("launcher")
        if not missing or place is None or not run.of("trainer", "accelerate"):
            continue
        yield Finding(
            f"{card.title} needs {' and '.join(missing)} under a driver before 550.40.07",
            (place.label("passes the environment on unchanged"),),
            (_WHY,),
            f"export {' '.join(f'{name}=1' for name in missing)}, or update the driver",
            certain=False,
        )
