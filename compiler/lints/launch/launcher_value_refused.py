"""A launcher's flag with a value that the launcher does not take."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.hosts import hostfiles
from tunec.compiler.lints.launch.scripts import is_unknown, launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run


class _Form(NamedTuple):
    """What a flag takes."""

    fits: Callable[[str], bool]
    told: str
    """In words."""
    mend: str
    consequence: Consequence = "init"


def _words(*words: str) -> Callable[[str], bool]:
    return frozenset(words).__contains__


def _like(pattern: str) -> Callable[[str], bool]:
    return re.compile(pattern).fullmatch  # type: ignore[return-value]


def _is_range(text: str) -> bool:
    """`--nnodes`: a number, or the fewest and the most."""
    parts = text.split(":")
    if len(parts) > 2 or not all(each.isdigit() for each in parts):
        return False
    return 0 < int(parts[0]) <= int(parts[-1])


_DEVICES: Final = ("cpu", "gpu", "xpu", "auto", "npu", "hpu", "mlu", "musa")
_BACKENDS: Final = ("static", "c10d", "etcd", "etcd-v2")
_PAIRS: Final = _Form(
    _like(r"\s*|\s*[^=,\s][^=,]*=[^,]+(,[^=,]+=[^,]+)*"), "KEY=VALUE,KEY=VALUE", "timeout=900"
)
_STREAMS: Final = _Form(_like(r"[0-3]|(\d+:[0-3],?)+"), "0 to 3, or RANK:NUMBER", "3")
_COUNT: Final = _Form(_like(r"[-+]?\d+"), "a whole number", "8", "parse")
_TORCHRUN: Final[Mapping[str, _Form]] = {
    "nproc_per_node": _Form(
        lambda text: text in _DEVICES or (text.isdigit() and int(text) > 0),
        "a number above 0, gpu, cpu or auto",
        "gpu",
    ),
    "nnodes": _Form(_is_range, "a number, or the fewest and the most: 2:4", "2:4"),
    "node_rank": _Form(_like(r"\d+"), "a whole number", "0", "parse"),
    "rdzv_backend": _Form(_words(*_BACKENDS), ", ".join(_BACKENDS), "c10d"),
    "rdzv_conf": _PAIRS,
    "max_restarts": _Form(_like(r"\d+"), "a whole number, 0 or above", "0"),
    "tee": _STREAMS,
    "redirects": _STREAMS,
    "start_method": _Form(
        _words("spawn", "fork", "forkserver"), "spawn, fork, forkserver", "spawn", "parse"
    ),
}
_WAYS: Final = ("pdsh", "openmpi", "mpich", "impi", "slurm", "mvapich")
_DEEPSPEED: Final[Mapping[str, _Form]] = {
    "launcher": _Form(lambda text: text.lower() in _WAYS, ", ".join(_WAYS), "openmpi"),
    "num_gpus": _COUNT,
    "num_nodes": _COUNT,
    "node_rank": _Form(_like(r"-1|\d+"), "a whole number", "0", "parse"),
}
_ACCELERATE: Final[Mapping[str, _Form]] = {
    "num_processes": _COUNT,
    "num_machines": _COUNT,
    "machine_rank": _Form(_like(r"\d+"), "a whole number", "0", "parse"),
    "rdzv_conf": _PAIRS,
    "tee": _STREAMS,
}
_FORMS: Final = {"torchrun": _TORCHRUN, "deepspeed": _DEEPSPEED, "accelerate": _ACCELERATE}
_CHOOSING: Final[Mapping[str, Callable[[str], bool]]] = {
    **dict.fromkeys(("include", "i"), lambda text: "@" in text),
    "num_nodes": lambda text: text.isdigit() and int(text) > 1,
    "num_gpus": lambda _: False,
}
"""Flags that choose, and whether one leaves several hosts by itself."""
_TO_BE_PUT_IN: Final = ("{", "[", "<")
"""How instructions mark what the reader is to put in."""
_SLOTS: Final = ("num_gpus",)
"""Flags that take devices of each host, and leave all hosts."""
_NARROW: Final = ("openmpi", "mpich", "impi", "mvapich")


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, *_FORMS):
        launcher = str(document.value("launcher"))
        if document.get("script") is None:
            continue
        for name, form in _FORMS[launcher].items():
            at = document.get(f"flags.{name}")
            if at is None or is_unknown(document, at.path) or at.node.items is not None:
                continue
            text = _text(at)
            if text is not None and not form.fits(text) and not text.startswith(_TO_BE_PUT_IN):
                yield _finding(at, name, text, form)
        way = document.get("flags.launcher")
        if launcher == "deepspeed" and way is not None and str(way.value).lower() in _NARROW:
            yield from _narrowed(way, document, run)


def _text(at: Place) -> str | None:
    """The word as it is written; None for a flag without one, which others tell."""
    if at.value is True and at.node.written is None:
        return None
    return at.node.written if at.node.written is not None else str(at.value)


def _finding(at: Place, name: str, text: str, form: _Form) -> Finding:
    return Finding(
        f"--{name} {text} is refused",
        (at.label("not taken"),),
        (f"it takes {form.told}",),
        f"write --{name} {form.mend}, or what is meant",
        consequence=form.consequence,
    )


def _narrowed(way: Place, document: Document, run: Run) -> Iterator[Finding]:
    """A way of starting that takes every slot of the hostfile, and a flag that takes fewer.

    Where one host is left, deepspeed starts the run here, and asks nobody.
    """
    several = any(len(entries) > 1 for _, entries in hostfiles(run))
    for name, leaves_more in _CHOOSING.items():
        at = document.get(f"flags.{name}")
        if at is not None and (leaves_more(str(at.value)) or (several and name in _SLOTS)):
            yield Finding(
                f"--launcher {way.value} takes every slot of the hostfile",
                (at.label("refused"), way.label("", primary=False)),
                (f"deepspeed: {way.value} backend does not support worker include/exclusion",),
                "write what is used into the hostfile, or take --launcher pdsh",
            )


RULE = Rule(
    name="launcher-value-refused",
    severity="error",
    consequence="init",
    consumers=("torch", "deepspeed", "accelerate"),
    sources=(
        (
            "torch 2.13.0 distributed/run.py `determine_local_world_size`, `parse_min_max_nnodes`, "
            "`config_from_args`; elastic/rendezvous/utils.py `_parse_rendezvous_config`, "
            "registry.py; elastic/multiprocessing/api.py `Std.from_str`"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `main`: Unknown launcher; "
            "multinode_runner.py `validate_args`"
        ),
        "accelerate 0.33.0 to 1.15.0 commands/launch.py `launch_command_parser`",
    ),
    check=_check,
)
