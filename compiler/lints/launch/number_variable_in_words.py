"""A variable of NCCL that is read as a number, and given as a word."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

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
_SWITCHES: Final = ("_DISABLE", "_ENABLE", "_AFFINITY")
_NO: Final = ("", "false", "no", "off", "n", "f")
"""Words for what 0 does anyway."""


def _check(run: Run) -> Iterator[Finding]:
    seen = set[str]()
    for document in launches(run):
        for key, place in document.found.items():
            name = key.removeprefix("environment.")
            if name not in _NUMBERS or key == name or str(place.span) in seen:
                continue
            text = str(place.value)
            if not _NUMBER.match(text) and text.strip().lower() not in _NO:
                seen.add(str(place.span))
                yield _finding(place, name, text)


def _finding(place: Place, name: str, text: str) -> Finding:
    return Finding(
        f"{name}={text} is read as 0",
        (place.label("not a number"),),
        ("NCCL reads it by strtoll, which makes 0 of a word and reports nothing",),
        f"write {name}=1" if name.endswith(_SWITCHES) else "write the number that is meant",
    )


RULE = Rule(
    name="number-variable-in-words",
    severity="error",
    consequence="silent",
    consumers=("nccl",),
    sources=(
        "NVIDIA/nccl 2.18 to 2.27 src/misc/param.cc `ncclLoadParam`: strtoll, and errno alone",
        "NCCL 2.21 user guide, Environment Variables: values accepted are 0 and 1",
    ),
    check=_check,
)
