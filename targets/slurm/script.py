"""train.sbatch as data, in both directions: requested resources, and a launch script's command."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any, Final

from tunec.compiler.target import Found, Json
from tunec.schemas.source import Span, start_of
from tunec.targets.launch.node_setup import called, setup_lines, setup_text, without_setup
from tunec.targets.launch.script import HAVE_ONE_PORT, command, is_spread
from tunec.targets.launch.script import found_in as found_in_command

SECTION: Final = "sbatch"
_OPTION: Final = re.compile(r"#SBATCH[ \t]+--([a-z][a-z-]*)(?:=(\S+))?[ \t]*")
_LITERAL: Final = re.compile(r"[$`]")
_CONTAINER: Final = re.compile(r"(?:^srun|^ ) [^\n]*--container-image=(\S+)", re.MULTILINE)
_CONFIG: Final = "slurm/accelerate.yaml"
"""The path that a job sees, which runs where it was submitted: in the root of its bundle."""
COUNTS: Final = frozenset(
    {
        *("nodes", "ntasks", "ntasks_per_node", "cpus_per_task", "gpus", "gpus_per_node"),
        *("gpus_per_task", "mem", "mem_per_cpu", "mem_per_gpu"),
    }
)
"""Options whose values are read as numbers if they look like one; a partition may be called
`2024`."""

# Two jobs that share a node have different numbers, and so different ports of the range that no
# service registers; the first node of the list is the one that the others meet at.
_PORT: Final = 'MASTER_PORT="$((20000 + SLURM_JOB_ID % 20000))"\n'
_MEETING: Final = (
    'MASTER_ADDR="$(scontrol show hostnames "${SLURM_JOB_NODELIST}" | head -n 1)"\n'
    f"{_PORT}export MASTER_ADDR MASTER_PORT\n"
)
_STEP: Final = 'srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK}" \\\n'
_MOUNTED: Final = 'beside="$(dirname "${PWD}")"\n'
_IN_CONTAINER: Final = (
    '  --container-image={} --container-workdir="${{PWD}}" \\\n'
    '  --container-mounts="${{beside}}:${{beside}}" \\\n'
)
"""pyxis makes the image a root file system without the node's files, except those that are mounted:
the bundle and its neighbours (NVIDIA/pyxis v0.20.0 args.c `spank_opts`)."""
_BASH: Final = '  bash -c \'start "$@"\' start "$@"\n'


# ── data to text ─────────────────────────────────────────────────────────────────────────────────


def render(values: Mapping[str, Json], header: Sequence[str]) -> str:
    """The text of train.sbatch: options, variables, and the step that starts each node's command.

    If devices are selected there is one node and no step, since Slurm would choose the devices of a
    step and set their variable.
    """
    comment = "".join(f"# {line}\n" for line in header)
    options = "".join(_options(values[SECTION]))
    exports = "".join(starmap(_export, values.get("environment", {}).items()))
    spread = is_spread(values)
    parts = (
        "set -euo pipefail\n",
        exports,
        _MEETING if spread else _port(values),
        _hosts(values) if spread and values["launcher"] == "deepspeed" else "",
        *_started(values),
    )
    return f"#!/usr/bin/env bash\n{comment}{options}\n" + "\n".join(filter(None, parts))


def _port(values: Mapping[str, Json]) -> str:
    """The port of a job's own, for a launcher that takes the same one for all on a shared node."""
    is_alone = values[SECTION].get("exclusive") or values["launcher"] not in HAVE_ONE_PORT
    return "" if is_alone else f"{_PORT}export MASTER_PORT\n"


def _options(asked: Mapping[str, Json]) -> Iterator[str]:
    for name, value in asked.items():
        flag = name.replace("_", "-")
        yield f"#SBATCH --{flag}\n" if value is True else f"#SBATCH --{flag}={value}\n"


def _export(name: str, value: str) -> str:
    """A variable's export; ShellCheck reports a `$` in single quotes as a mistake."""
    note = "# shellcheck disable=SC2016\n" if _LITERAL.search(value) else ""
    return f"{note}export {name}={shlex.quote(value)}\n"


def _hosts(values: Mapping[str, Json]) -> str:
    """The host file of DeepSpeed's launcher (deepspeed 0.19.8 launcher/runner.py)."""
    return (
        'HOSTFILE="${SLURM_SUBMIT_DIR}/hostfile.${SLURM_JOB_ID}"\n'
        "export HOSTFILE\n"
        'scontrol show hostnames "${SLURM_JOB_NODELIST}" |\n'
        f"  sed 's/$/ slots={values['per_node']}/' > \"${{HOSTFILE}}\"\n"
    )


def _started(values: Mapping[str, Json]) -> tuple[str, ...]:
    words, setup = command(values, _CONFIG), tuple(values.get("setup", ()))
    if values[SECTION].get("exclusive"):
        return (_setup(setup), f"{called(setup)}{words}\n")
    rank = ['NODE_RANK="${SLURM_NODEID}"'] if is_spread(values) else []
    lines = (*called(setup).splitlines(), *rank, *words.splitlines())
    body = "".join(f"  {line}\n" for line in lines)
    exported = "export -f setup start" if setup else "export -f start"
    return (_setup(setup), f"start() {{\n{body}}}\n{exported}\n", _step(values))


def _setup(lines: tuple[str, ...]) -> str:
    """The user's lines; ShellCheck does not check the files that they source."""
    return f"# shellcheck disable=SC1090,SC1091\n{setup_text(lines)}" if lines else ""


def _step(values: Mapping[str, Json]) -> str:
    """The step that starts each node's command, in a container if one is named."""
    image = values.get("container")
    if image is None:
        return _STEP + _BASH
    return _MOUNTED + _STEP + _IN_CONTAINER.format(shlex.quote(_enroot(image))) + _BASH


def _enroot(image: str) -> str:
    """An image in enroot's format: `nvcr.io#nvidia/pytorch:25.10` (enroot doc/cmd/import.md)."""
    host, slash, rest = image.partition("/")
    is_registry = bool(slash) and bool({".", ":"} & set(host)) and not host.startswith((".", "~"))
    return f"{host}#{rest}" if is_registry else image


# ── text to data ─────────────────────────────────────────────────────────────────────────────────


def parse(text: str) -> Json:
    """The keys and values of a batch script: tunec's, or another simple one."""
    document: dict[str, Any] = {}
    for key, found in found_in(text, "train.sbatch").items():
        if "." not in key:
            document[key] = found.value
    return document


def found_in(text: str, file: str) -> dict[str, Found]:
    """The keys of a batch script with their places.

    Keys are those of a launch script, and `sbatch` with a key for each option below it, spelled
    with underscores. Only options before the first command count (sbatch manual page).
    """
    options = dict(_directives(text, file))
    found = {**_prepared(text, file), **found_in_command(without_setup(text), file)}
    if not options:
        return found
    values = {name: found.value for name, found in options.items()}
    below = {f"{SECTION}.{name}": found for name, found in options.items()}
    first = next(iter(options.values()))
    return {SECTION: Found(values, first.span), **below, **found}


def _prepared(text: str, file: str) -> dict[str, Found]:
    """The container and the user's lines, if there are any."""
    start = start_of(file)
    setup, image = setup_lines(text), _CONTAINER.search(text)
    found = {"setup": Found(list(setup), start)} if setup else {}
    if image is None:
        return found
    return {**found, "container": Found(shlex.split(image[1])[0].replace("#", "/", 1), start)}


def _directives(text: str, file: str) -> Iterator[tuple[str, Found]]:
    for at, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            return
        option = _OPTION.fullmatch(line)
        if option is not None:
            value = True if option[2] is None else option[2]
            name = option[1].replace("-", "_")
            typed = int(value) if name in COUNTS and str(value).isdecimal() else value
            yield name, Found(typed, Span(file, at, 1, at, len(line) + 1))
