"""A server of answers that a script starts beside the training that is to ask it."""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.frontend.shell_script import follow
from tunec.compiler.frontend.shell_variables import Field
from tunec.compiler.frontend.shell_words import whole
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import COMMANDS, is_unknown, launches, listed, variable
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.targets.launch.lines import at_offset, scripts
from tunec.targets.launch.rules.visible_devices import gpu_ids, selection

_ASKING: Final = ("grpo", "rloo")
_FILE: Final = "accelerate"
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
_SERVES: Final = (("trl", "vllm-serve"), ("trl", "vllm_serve"))
_BEFORE: Final = frozenset({"env", "exec", "nohup", "setsid", "uv"})
"""Wrappers on the same machine, behind which a command may begin a few words later."""
_LISTED: Final = re.compile(rf"(?:{_VISIBLE}=)?[\"']?(\d+(?:,\d+)*)[\"']?")
_ELSEWHERE: Final = re.compile(r"(?m)^[ \t]*(?:if|elif|case|srun|ssh|pdsh|docker|singularity)\b")
"""Commands by which the two may be on different machines."""


class _Server(Struct, frozen=True):
    """A command that starts TRL's server."""

    document: Document
    word: Field
    devices: tuple[str, ...] | None
    """Those that it may use; None: all of them."""


def _servers(run: LintContext) -> Iterator[_Server]:
    """trl 0.16 to 1.16.0 scripts/vllm_serve.py, by its command."""
    for document in scripts(run):
        for each in follow(whole(document.text)).runs:
            words = [word.word.text for word in each.fields[:8]]
            starts = range(len(words) if words and words[0] in _BEFORE else 1)
            at = next((n for n in starts if tuple(words[n : n + 2]) in _SERVES), None)
            if at is not None:
                devices = next(filter(None, map(_devices, each.fields[:at])), None)
                mine = devices or _devices(each.environment.get(_VISIBLE))
                yield _Server(document, each.fields[at + 1], mine)


def _devices(given: Field | None) -> tuple[str, ...] | None:
    """The devices of a list, or of an assignment that a wrapper takes as a word."""
    found = None if given is None else _LISTED.fullmatch(given.word.text)
    return None if found is None else tuple(found[1].split(","))


def _asking(run: LintContext) -> Iterator[tuple[Place, Place | None]]:
    """Where generation by vLLM is turned on, and its mode, as written."""
    for document in run.of(*_ASKING):
        used = document.get("use_vllm")
        if used is not None and used.value is True:
            yield used, document.get("vllm_mode")


@rule("warning", "silent", consumers=("trl",), reads=keys("|".join(_ASKING), "use_vllm"))
def server_not_asked(run: LintContext) -> Iterator[Finding]:
    """A server is started, and the trainer generates in its own processes by default."""
    if not run.runs("trl>=1") or not any(True for _ in _servers(run)):
        return
    for used, mode in _asking(run):
        if mode is None:
            yield Finding(
                "the script starts trl vllm-serve, and the trainer does not ask it",
                (used.label("by vLLM in the trainer's own processes"),),
                (
                    "vllm_mode is colocate by default since TRL 1.0: each process loads an engine",
                    "the server's devices stay idle",
                ),
                "write vllm_mode: server",
            )


@rule("error", "init", consumers=("trl",), reads=COMMANDS)
def server_on_training_devices(run: LintContext) -> Iterator[Finding]:
    """A server of answers and the training that asks it have a device in common."""
    asking = [mode or used for used, mode in _asking(run) if _is_server(run, mode)]
    for server in _servers(run) if asking else ():
        if _ELSEWHERE.search(server.document.text):
            continue
        for document in launches(run):
            serves = ("0",) if server.devices is None else server.devices
            is_beside = document.name == server.document.name
            trains = _trains_on(run, document) if is_beside else ()
            shared = tuple(each for each in trains if each in serves)
            if shared:
                yield _collides(server, shared, asking[0])
                break


def _is_server(run: LintContext, mode: Place | None) -> bool:
    return mode.value == "server" if mode is not None else run.runs("trl>=0.16,<1") is True


def _trains_on(run: LintContext, document: Document) -> tuple[str, ...]:
    """The devices of the training, by its launcher or the variable; empty: unknown.

    A program that is given none begins with device 0.
    """
    if any(is_unknown(document, each) for each in (f"environment.{_VISIBLE}", "flags.gpu_ids")):
        return ()
    if document.get("flags.config_file") is not None and not any(True for _ in run.of(_FILE)):
        return ()
    picked, chosen = selection(document), gpu_ids(run, document)
    if picked is not None:
        return picked[1] or ()
    if chosen is not None and chosen.value != "all":
        return listed(chosen) or ()
    visible = variable(document, _VISIBLE)
    return ("0",) if visible is None else listed(visible) or ()


def _collides(server: _Server, shared: tuple[str, ...], asking: Place) -> Finding:
    word = server.word.word.text
    what = "device" if len(shared) == 1 else "devices"
    return Finding(
        f"the server and the training both use {what} {quoted(shared)}",
        (
            at_offset(server.document, server.word.chars.at[0], len(word), "serves there"),
            asking.label("asks it", primary=False),
        ),
        (
            "the trainer sends its weights by NCCL, which refuses two processes on one device",
            f"a command without {_VISIBLE} begins with device 0",
        ),
        f"give each command devices of its own by {_VISIBLE}",
    )
