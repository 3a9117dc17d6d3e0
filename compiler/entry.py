"""run.sh: the one script of a bundle that starts its run, whoever starts it from wherever."""

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.local_paths import own_modules
from tunec.compiler.start_commands import RUN
from tunec.compiler.target import Artifact, Target
from tunec.schemas.spec import Spec

_HERE: Final = 'CDPATH=\'\' cd -- "$(dirname -- "${BASH_SOURCE[0]}")'


def entry(folder: str, command: str, before: str, header: Sequence[str]) -> Artifact:
    """The script: it changes to `folder` of the bundle's root, and passes its arguments on.

    `before` are lines that come before the command.
    """
    comment = "".join(f"# {line}\n" for line in header)
    text = (
        f"#!/usr/bin/env bash\n{comment}set -euo pipefail\n\n"
        f'{_HERE}{folder}"\n{before}exec {command} "$@"\n'
    )
    return Artifact(RUN, "shell", text, {"folder": folder, "command": command})


_AGAIN: Final = (
    "started again, the run goes on from the last checkpoint in its output folder, also where the",
    "spec has changed; for a new run, move the folder away or name another one as train.output",
)


def again(targets: Sequence[Target], plan: Plan, spec: Spec) -> tuple[str, ...]:
    """Comment lines about a second start, if the trainer's own program does not begin anew."""
    own = [each for each in targets if each.entry or each.command][:1]
    is_started = spec.run.script is None
    return _AGAIN if is_started and any(each.goes_on(plan) for each in own) else ()


def searched(plan: Plan, base: str) -> str:
    """A line that puts the spec's directory on the import path, if modules there are imported."""
    path = f'{shlex.quote(base)}"${{PYTHONPATH:+:${{PYTHONPATH}}}}"'
    return f"export PYTHONPATH={path}\n" if own_modules(plan) else ""


def prepared(
    targets: Sequence[Target], artifacts: Mapping[str, Sequence[Artifact]], plan: Plan
) -> str:
    """Lines for the files whose folder a file names that the started program is given."""
    every = {f"{name}/{each.name}": each for name, files in artifacts.items() for each in files}
    given = [each for path, each in every.items() if path in plan.launch.script]
    named = {each for read in given for each in read.values.values() if isinstance(each, str)}
    written = {f"{each.name}/{file.name}": file for each in targets for file in each.files}
    lines = (
        written[path].prepares(each.values)
        for path, each in every.items()
        if posixpath.dirname(path) in named
    )
    return "".join(lines)
