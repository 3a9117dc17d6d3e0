"""The short bundle beside a bundle: the same layout, two steps, a checkpoint, a resume."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.bundle import Outset
from tunec.compiler.driver import Compiled, compile_spec
from tunec.compiler.frontend.load import Loaded, with_settings
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import plain
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Artifact
from tunec.compiler.watch.expectation import must_show, settings
from tunec.compiler.watch.probe_files import FOLDER, PLAN
from tunec.schemas.frozen import replace

SMOKE: Final = "smoke"
"""The folder of the short bundle, in the bundle."""
PHASES: Final = ("first", "resumed")
"""The phases of the short run, which the probe reads from TUNEC_SMOKE."""
IMPOSSIBLE: Final = (
    "--smoke needs a trainer that takes the probe, started on this machine: `trl`, or "
    "`huggingface` with a script of yours"
)
_LAYOUT: Final = (
    *("parallel", "states", "zero", "fsdp", "activation_checkpointing", "batch", "precision"),
    *("attention", "quantization", "adapter", "optimizer", "loss", "devices"),
)
"""Groups of slots that the short run shares with the long one."""


def smoke_of(
    loaded: Loaded, whole: Compiled, asked: Sequence[Asked], outset: Outset | None
) -> Compiled | None:
    """The short bundle of a compiled one; None if none can be made."""
    plan, spec = whole.planned.plan, loaded.spec
    if plan is None or spec is None:
        return whole
    output = spec.train.output if "output" in spec.train.model_fields_set else None
    asking = settings(plan, output, spec.name)
    short = compile_spec(with_settings(loaded, asking), asked, outset, repairing=False)
    apart = tuple(_apart(plan, short.planned.plan)) if short.planned.plan is not None else ()
    if apart:
        short = compile_spec(with_settings(loaded, (*asking, *apart)), asked, outset)
    if not short.ok:
        return short
    if FOLDER not in short.beside or short.run is None or not _starts_here(short.run):
        return None
    return _made_short(short)


def _starts_here(run: Artifact) -> bool:
    """Whether the entry waits for the run, and does not queue it on a cluster."""
    return str(run.values["command"]).startswith("bash ")


def _apart(plan: Plan, short: Plan) -> Iterator[str]:
    """Pins for the slots in which the short plan differs from the long one."""
    for path, slot in SLOTS.items():
        if slot.group in _LAYOUT and plan[path] != short[path]:
            yield f"pin.{path}={json.dumps(plain(plan[path]))}"


def _made_short(short: Compiled) -> Compiled:
    """The bundle with an entry that runs twice, and the checks for both runs."""
    planned, run = short.planned, short.run
    (kept,) = (each for each in short.beside[FOLDER] if each.name == PLAN)
    others = tuple(each for each in short.beside[FOLDER] if each.name != PLAN)
    if planned.plan is None or run is None:
        return short
    from msgspec import convert

    from tunec.compiler.watch.expectation import Expected

    known = convert(kept.values["expected"], Expected)
    checks = dict(must_show(planned.plan, known))
    said = {**kept.values, "must_show": checks}
    text = json.dumps(said, indent=2) + "\n"
    folder = {FOLDER: (*others, Artifact(PLAN, "json", text, said))}
    return replace(short, beside=folder, run=_twice(run, checks))


_MUST: Final = "# what must be seen, which `tunec calibrate` of this directory judges:\n"


def _twice(run: Artifact, checks: Mapping[str, Any]) -> Artifact:
    """The entry of the bundle: the run, and a second run that resumes its first checkpoint."""
    command, folder = run.values["command"], run.values["folder"]
    head, _, _ = run.text.partition("exec ")
    must = "".join(f"#   {shlex.quote(name)}: {text}\n" for name, text in checks.items())
    lines = "".join(f'TUNEC_SMOKE={phase} {command} "$@"\n' for phase in PHASES)
    text = f"{head}{_MUST}{must}{lines}"
    return Artifact(run.name, run.format, text, {"folder": folder, "command": command})
