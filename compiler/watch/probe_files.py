"""The files of the probe in a bundle, and the command that starts a trainer with it."""

import json
import posixpath
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, to_builtins

from tunec.compiler.analyses.memory.account import Account
from tunec.compiler.analyses.time.account import TimeAccount
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.facts import Facts
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.frontend.measurements import path_beside
from tunec.compiler.frontend.names import is_path
from tunec.compiler.ir.plan import Plan
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact
from tunec.compiler.watch.expectation import Expected, expected
from tunec.schemas.hardware.profile import Cluster

FOLDER: Final = "watch"
"""The folder in the bundle."""
PROGRAM: Final = "watch.py"
PLAN: Final = "plan.json"
_LIVE: Final = Path(__file__).parent / "live" / PROGRAM

_STARTERS: Final = frozenset({"launch", "slurm", "skypilot"})
"""Targets that start a program from the bundle's root."""
_OVER_TRAINER: Final = frozenset({"trl", "huggingface"})
"""Targets whose program is transformers' Trainer, or a user's script that uses it."""


class ProbeFiles(Struct, frozen=True):
    """The parts of the probe that a bundle has."""

    starters: frozenset[str] = frozenset()
    """The targets that start the trainer with the probe."""
    diagnostics: tuple[Diagnostic, ...] = ()

    def put_into(self, plans: Mapping[str, Plan]) -> dict[str, Plan]:
        """Each target's plan, with the probe in front of the script if the target starts it."""
        return {name: _watched(p) if name in self.starters else p for name, p in plans.items()}

    def files(
        self,
        facts: Facts,
        memory: Account | None,
        time: TimeAccount | None,
        loaded: Loaded,
        spec: str,
    ) -> dict[str, tuple[Artifact, ...]]:
        """The probe's files by folder; `spec` is the spec's directory relative to the root."""
        if not self.starters or memory is None or time is None:
            return {}
        return {FOLDER: _probe_files(expected(facts, memory, time), loaded, spec)}


def carried(asked: Sequence[Asked]) -> ProbeFiles:
    """The targets that start a trainer to which the probe can be added."""
    names = {target.name for target, _ in asked}
    starters = names & _STARTERS
    if starters and names & _OVER_TRAINER and not names - _STARTERS - _OVER_TRAINER - _BESIDE:
        return ProbeFiles(frozenset(starters))
    return ProbeFiles(diagnostics=tuple(_not_carried(sorted(names))))


_BESIDE: Final = frozenset({"deepspeed", "accelerate"})
"""Targets whose files are passed on by other targets."""


def _not_carried(names: Sequence[str]) -> Iterator[Diagnostic]:
    yield Diagnostic(
        "watch-not-carried",
        "note",
        f"the bundle of {joined(names, 'and')} carries no probe",
        (Label("requested here", path="watch"),),
        ("it watches transformers' Trainer: `trl`, or `huggingface` with a script of yours",),
        help="`tunec calibrate SPEC RUN` reads the trainer's own logs",
    )


def _watched(plan: Plan) -> Plan:
    """A plan whose script is started with the probe."""
    words = shlex.join((f"{FOLDER}/{PROGRAM}",))
    return plan.with_values({"launch.script": f"{words} {plan.launch.script}"})


def _probe_files(known: Expected, loaded: Loaded, spec: str) -> tuple[Artifact, ...]:
    """The probe and its expectations; `spec` is the spec's directory relative to the root."""
    said = {"tunec_watch": 1, "expected": to_builtins(known), "measured": _place(loaded, spec)}
    text = json.dumps(said, indent=2) + "\n"
    program = _LIVE.read_text("utf-8")
    return (
        Artifact(PROGRAM, "text", program, {}),
        Artifact(PLAN, "json", text, said),
    )


def _place(loaded: Loaded, spec: str) -> str | None:
    """The file with measured runs of the cluster, relative to the bundle's root."""
    hardware = loaded.spec.hardware if loaded.spec is not None else None
    if hardware is None or isinstance(hardware, Cluster) or loaded.cluster is None:
        return None
    base = Path()
    file = base / hardware if is_path(hardware, loaded.base) else None
    found = path_beside(loaded.cluster.name, base, file).as_posix()
    return found if found.startswith("/") else posixpath.normpath(posixpath.join(spec, found))
