"""A variable of the environment whose name is nearly one that programs read."""

from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Final

from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.launch.variables import KNOWN
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LIKE: Final = 0.93
_OF_OTHERS: Final = ("HCCL_", "RCCL_", "ACCL_", "MCCL_", "CNCL_", "BKCL_")
"""Libraries of other devices, whose variables are called as NCCL's are (Ascend/pytorch 2.1
docs: HCCL_ASYNC_ERROR_HANDLING)."""


def _check(run: Run) -> Iterator[Finding]:
    seen = set[tuple[str, str]]()
    for document in launches(run):
        for key, place in document.found.items():
            holder, _, name = key.partition(".")
            if holder != "environment" or not name or (document.name, name) in seen:
                continue
            if name in _NOBODY_S and (document.name, name) not in seen:
                seen.add((document.name, name))
                yield _of_nobody(place, name)
            near = _near(name)
            if near is None:
                continue
            seen.add((document.name, name))
            yield Finding(
                f"no program reads {name}",
                (place.key_label("not a variable that is read"),),
                (),
                f"did you mean {near}?",
            )


_NOBODY_S: Final[Mapping[str, str]] = {
    "NCCL_TIMEOUT": "give the trainer --ddp_timeout, in seconds",
}
"""Names that people set and that neither NCCL nor torch has; a script may read them itself."""


def _of_nobody(place: Place, name: str) -> Finding:
    return Finding(
        f"neither NCCL nor torch reads {name}",
        (place.key_label("not a variable that is read"),),
        ("how long a collective may take is said where the process group is made: 30 minutes",),
        _NOBODY_S[name],
        severity="warning",
    )


def _near(name: str) -> str | None:
    if name in KNOWN or not name.isupper() or name.startswith(_OF_OTHERS):
        return None
    for each in nearest(name, KNOWN)[:1]:
        if SequenceMatcher(None, name, each).ratio() >= _LIKE:
            return each
    return None


RULE = Rule(
    name="variable-misspelt",
    severity="error",
    consequence="silent",
    consumers=("torch", "nccl"),
    sources=(
        (
            "CUDA C++ Programming Guide 12.6, CUDA Environment Variables; NCCL 2.21 user guide, "
            "Environment Variables; torch 2.13.0 distributed/run.py, c10/core/AllocatorConfig, "
            "distributed/distributed_c10d.py `init_process_group`: timeout"
        ),
    ),
    check=_check,
)
