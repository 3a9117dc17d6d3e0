"""launch.sh as data, in both directions: variables, the launcher, its flags, its script."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.target import Found, Json
from tunec.schemas.source import start_of
from tunec.schemas.terms import VISIBLE, Launcher
from tunec.targets.launch.words import Word, commands

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PARAMETER = re.compile(r"\$\{(\w+)(?::?([-+])((?:[^{}]|\{\w+\})*))?\}|\$(\w+)")
"""A parameter, with its alternative, in which other parameters may stand."""
_PASSED_ON: Final = ("$@", "$*")
_COMPUTED: Final = "$("

_SWITCHES: Final[Mapping[Launcher, frozenset[str]]] = {
    "python": frozenset({"-m", "-u", "-B", "-E", "-s", "-I", "-O"}),
    "torchrun": frozenset({"--standalone", "-m", "--module", "--no-python", "--run-path"}),
    "deepspeed": frozenset(
        {
            *("--module", "--no-python", "--no-local-rank", "--no-ssh", "--no-ssh-check"),
            *("--force-multi", "--save-pid", "--bind-cores-to-rank", "--quiet"),
        }
    ),
    "accelerate": frozenset(
        {
            *("-m", "--module", "--multi-gpu", "--use-deepspeed", "--use-fsdp", "--cpu", "--quiet"),
            *("--no-python", "--same-network", "--debug", "-q"),
        }
    ),
}
"""Flags without a value: python 3.11; torch 2.13.0 distributed/run.py; deepspeed 0.14.5 to 0.19.8
launcher/runner.py; accelerate 0.30.1 to 1.15.0 commands/launch.py."""

_PROCESSES: Final[Mapping[Launcher, tuple[str, str]]] = {
    "python": ("", ""),
    "torchrun": ("--nnodes", "--nproc-per-node"),
    "deepspeed": ("--num-nodes", "--num-gpus"),
    "accelerate": ("--num-machines", ""),
}
_ALIASES: Final[Mapping[str, str]] = {"--num-accelerators": "--num-gpus"}
_BESIDE: Final = '"$(dirname "${BASH_SOURCE[0]}")/accelerate.yaml"'
_CHOSEN = re.compile(r"localhost:(\d+(?:,\d+)*)")


# ── data to text ─────────────────────────────────────────────────────────────────────────────────


def render(values: Mapping[str, Json], header: Sequence[str]) -> str:
    """The text of launch.sh: the variables, then one command, to which arguments are passed on."""
    comment = "".join(f"# {line}\n" for line in header)
    exports = "".join(
        f"export {name}={shlex.quote(value)}\n"
        for name, value in values.get("environment", {}).items()
    )
    parts = ("set -euo pipefail\n", exports, _needed(values), f"{command(values)}\n")
    return f"#!/usr/bin/env bash\n{comment}" + "\n".join(filter(None, parts))


def _needed(values: Mapping[str, Json]) -> str:
    """Checks of the variables that the cluster must set on each of several nodes."""
    if not is_spread(values):
        return ""
    return (
        ': "${NODE_RANK:?number of this node, from 0}"\n'
        ': "${MASTER_ADDR:?host name or address of node 0}"\n'
        'MASTER_PORT="${MASTER_PORT:-29500}"\n'
    )


def is_spread(values: Mapping[str, Json]) -> bool:
    """Whether the processes are on several nodes, so that each node needs its rank."""
    return bool(values.get("nodes", 1) > 1)


def command(values: Mapping[str, Json], config: str = _BESIDE, passed_on: str = ' "$@"') -> str:
    """The command that replaces the shell and starts the processes of one node.

    On several nodes it needs NODE_RANK, MASTER_ADDR and MASTER_PORT, and DeepSpeed's launcher a
    host file. `config` is the path of accelerate's file; `passed_on` ends the command. A program
    that Python starts gets its processes on other nodes from Ray, which stops with the program.
    """
    launcher = values["launcher"]
    start = _accelerate(values, config) if launcher == "accelerate" else _START[launcher](values)
    script = " ".join(map(shlex.quote, values["script"]))
    by_ray = launcher == "python" and is_spread(values)
    first = f"{_ray(values)}{start[0]}" if by_ray else f"exec {start[0]}"
    return " \\\n  ".join([first, *start[1:], f"{script}{passed_on}"])


_CLUSTER: Final = """\
ray_at="${{MASTER_ADDR}}:${{MASTER_PORT}}"
is_there() {{ ray health-check --address="${{ray_at}}" > /dev/null 2>&1; }}
leave() {{ kill "${{ray_here}}" || true; wait "${{ray_here}}" || true; }}
if [ "${{NODE_RANK}}" != 0 ]; then
  until is_there; do sleep 2; done
  ray start --address="${{ray_at}}" --num-gpus={per_node} --block &
  ray_here=$!
  trap leave EXIT
  while is_there || {{ sleep 10; is_there; }}; do sleep 5; done
  exit 0
fi
ray start --head --port="${{MASTER_PORT}}" --num-gpus={per_node} --block &
ray_here=$!
trap leave EXIT
until is_there; do sleep 2; done
export RAY_ADDRESS="${{ray_at}}"
python -c 'import ray, time; {waited}'
"""
"""Ray on each node: the first one starts it, the others join and stop with it, and the program
waits ten minutes for all devices. ray 2.9 to 2.50 scripts/scripts.py `start`, `healthcheck`; when
`--block` is stopped it stops its own processes, and no others of Ray on the node."""


_OWN: Final = "RAY_ADDRESS=${ray_at}"
"""What a script of tunec exports for itself: it is not the spec's, wherever node 0 is."""
_WAITED: Final = (
    'ray.init(logging_level="ERROR"); '
    '[time.sleep(2) for _ in range(300) if ray.cluster_resources().get("GPU", 0) < {}]'
)


def _ray(values: Mapping[str, Json]) -> str:
    each, nodes = values["per_node"], values["nodes"]
    return _CLUSTER.format(per_node=each, waited=_WAITED.format(each * nodes))


def is_module(script: Sequence[str]) -> bool:
    """Whether the first word names a module (`trl.scripts.sft`) and not a file (`train.py`)."""
    name = script[0] if script else ""
    return "." in name and "/" not in name and not name.endswith((".py", ".sh"))


def _module(values: Mapping[str, Json], flag: str = "-m") -> list[str]:
    return [flag] if is_module(values["script"]) else []


def _python(values: Mapping[str, Json]) -> list[str]:
    return ["python", *_module(values)]


def _torchrun(values: Mapping[str, Json]) -> list[str]:
    spread = [
        f"--nnodes={values['nodes']}",
        '--node_rank="${NODE_RANK}"',
        '--master_addr="${MASTER_ADDR}"',
        '--master_port="${MASTER_PORT}"',
    ]
    alone = ["--standalone", "--nnodes=1"]
    nodes = spread if is_spread(values) else alone
    return ["torchrun", *nodes, f"--nproc_per_node={values['per_node']}", *_module(values)]


_PORT: Final = '${{MASTER_PORT:+{}="${{MASTER_PORT}}"}}'
"""The port at which the processes of one node meet, if the variable is set, else the launcher's
own choice. That of DeepSpeed is 29500 (deepspeed 0.14.5 to 0.19.8 constants.py
`TORCH_DISTRIBUTED_DEFAULT_PORT`), that of accelerate too: if another run uses it, accelerate 0.30.1
to 1.7.0 fails, and 1.8.1 to 1.15.0 looks for a free one (utils/launch.py `prepare_multi_gpu_env`).
Neither reads the variable; `torchrun --standalone` takes a free port (torch 2.13.0
distributed/run.py)."""

HAVE_ONE_PORT: Final = frozenset({"deepspeed", "accelerate"})
"""The launchers that take the same port for every run on a node, unless MASTER_PORT is set."""

_VISIBLE: Final = '"${{CUDA_VISIBLE_DEVICES:+--include=localhost:}}${{CUDA_VISIBLE_DEVICES:-{}}}"'
"""The visible devices if the variable is set, else a count of devices. With a count alone DeepSpeed
takes the first devices and drops the variable (deepspeed 0.14.5 to 0.19.8 launcher/runner.py
`main`)."""


def _deepspeed(values: Mapping[str, Json]) -> list[str]:
    """The launcher's words, which the cluster runs on each node so that it has the variables.

    Over ssh, DeepSpeed passes on only those whose names begin with MLFLOW, PYTHON, MV2, UCX or NCCL
    (deepspeed 0.14.5 to 0.19.8 launcher/runner.py `EXPORT_ENVS`).
    """
    module = _module(values, "--module")
    port = _PORT.format("--master_port")
    if "include" in values:
        return ["deepspeed", f"--include=localhost:{','.join(values['include'])}", port, *module]
    count = f"--num_gpus={values['per_node']}"
    if not is_spread(values):
        is_set = VISIBLE["nvidia"] in values.get("environment", {})
        return ["deepspeed", count if is_set else _VISIBLE.format(count), port, *module]
    spread = [
        '--hostfile="${HOSTFILE:-hostfile}"',
        "--no_ssh",
        '--node_rank="${NODE_RANK}"',
        '--master_addr="${MASTER_ADDR}"',
        '--master_port="${MASTER_PORT}"',
        f"--num_nodes={values['nodes']}",
    ]
    return ["deepspeed", *spread, count, *module]


def _accelerate(values: Mapping[str, Json], config: str) -> list[str]:
    spread = [
        '--machine_rank="${NODE_RANK}"',
        '--main_process_ip="${MASTER_ADDR}"',
        '--main_process_port="${MASTER_PORT}"',
    ]
    nodes = spread if is_spread(values) else [_PORT.format("--main_process_port")]
    return ["accelerate launch", f"--config_file={config}", *nodes, *_module(values)]


_START = {"python": _python, "torchrun": _torchrun, "deepspeed": _deepspeed}


# ── text to data ─────────────────────────────────────────────────────────────────────────────────


def parse(text: str) -> Json:
    """The keys and values of a launch script: tunec's, or another simple one."""
    document: dict[str, Any] = {}
    for key, found in found_in(text, "launch.sh").items():
        if "." not in key:
            document[key] = found.value
    return document


def found_in(text: str, file: str) -> dict[str, Found]:
    """The keys of a launch script with their places.

    Keys are `environment` with a key for each variable below it, `launcher`, `nodes`, `per_node`,
    `include` and `script`. Only the last command that is a launcher counts.
    """
    exported: dict[str, Found] = {}
    known: dict[str, str] = {}
    launched: dict[str, Found] = {}
    for words in commands(text, file):
        prefixed, rest = _assignments(words, known)
        is_export = rest is not None and rest[0].text == "export"
        if is_export:
            named = [word for word in rest[1:] if word.text != _OWN] if rest else []
            prefixed, _ = _assignments(named, known)
        if is_export or rest is not None:
            exported |= prefixed
        known |= {name: found.value for name, found in prefixed.items()}
        if rest is not None and not is_export:
            launched = dict(_launched(rest, known)) or launched
    return {**_environment(exported, file), **launched}


def launched_words(text: str, file: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """The words of the command that starts a launcher, with the variables of `given` expanded.

    Arguments that are passed on to the script are left out. An assignment in the script overrides
    `given`, unless its value is computed, which needs a running shell.
    """
    known = dict(given)
    launched: tuple[str, ...] = ()
    for words in commands(text, file):
        prefixed, rest = _assignments(words, known)
        if rest is not None and rest[0].text == "export":
            prefixed, _ = _assignments(rest[1:], known)
        elif rest is not None:
            spoken = _spoken(rest, known)
            if _launcher(spoken)[0] is not None:
                launched = tuple(each.text for each in spoken if each.text not in _PASSED_ON)
        told = {name: found.value for name, found in prefixed.items()}
        known |= {n: v for n, v in told.items() if not (n in given and _COMPUTED in v)}
    return launched


def _assignments(
    words: Sequence[Word], known: Mapping[str, str]
) -> tuple[dict[str, Found], Sequence[Word] | None]:
    """The assignments at the start of a command, and the words after them, if any."""
    found: dict[str, Found] = {}
    for at, word in enumerate(words):
        match = _ASSIGNMENT.fullmatch(word.text)
        if match is None:
            return found, words[at:]
        found[match[1]] = Found(_expand(match[2], known), word.span)
    return found, None


def _expand(text: str, known: Mapping[str, str]) -> str:
    """A text in which the variables that the script sets, or gives a default, are expanded."""

    def value(match: re.Match[str]) -> str:
        name, mark, word = match[1] or match[4], match[2], match[3] or ""
        spoken = _expand(word.replace('"', ""), known)
        if mark == "+":
            return spoken if known.get(name) else ""
        return known.get(name, match[0] if mark is None else spoken)

    return _PARAMETER.sub(value, text)


def _spoken(words: Sequence[Word], known: Mapping[str, str]) -> Sequence[Word]:
    """The words of a command behind `exec`, expanded; one that comes to nothing is dropped."""
    spoken = [Word(_expand(word.text, known), word.span) for word in words]
    kept = [new for new, old in zip(spoken, words, strict=True) if new.text or not old.text]
    return kept[1:] if kept and kept[0].text == "exec" else kept


def _environment(exported: Mapping[str, Found], file: str) -> dict[str, Found]:
    values = {name: found.value for name, found in exported.items()}
    first = next(iter(exported.values()), Found(None, start_of(file)))
    below = {f"environment.{name}": found for name, found in exported.items()}
    return {"environment": Found(values, first.span), **below}


def _launched(words: Sequence[Word], known: Mapping[str, str]) -> Iterator[tuple[str, Found]]:
    words = _spoken(words, known)
    launcher, rest = _launcher(words)
    if launcher is None:
        return
    yield "launcher", Found(launcher, words[0].span)
    flags, script = _flags(rest, launcher)
    yield from _processes(flags, launcher)
    script = [word for word in script if word.text not in _PASSED_ON]
    if script:
        yield "script", Found([word.text for word in script], script[0].span)


def _launcher(words: Sequence[Word]) -> tuple[Launcher | None, Sequence[Word]]:
    """The launcher that a command starts, and the words after its name."""
    texts = [word.text for word in words]
    name = texts[0].rpartition("/")[2] if texts else ""
    if name == "accelerate" and texts[1:2] == ["launch"]:
        return "accelerate", words[2:]
    if name == "torchrun":
        return "torchrun", words[1:]
    if name == "deepspeed":
        return "deepspeed", words[1:]
    if re.fullmatch(r"python[\d.]*", name) is None:
        return None, ()
    if texts[1:3] in (["-m", "torch.distributed.run"], ["-m", "torch.distributed.launch"]):
        return "torchrun", words[3:]
    if texts[1:4] == ["-m", "accelerate.commands.launch"]:
        return "accelerate", words[3:]
    return "python", words[1:]


def _flags(words: Sequence[Word], launcher: Launcher) -> tuple[dict[str, Found], Sequence[Word]]:
    """A launcher's own flags, spelled with dashes, and the words from the script on."""
    found: dict[str, Found] = {}
    at = 0
    while at < len(words) and words[at].text.startswith("-"):
        name, given, value = words[at].text.partition("=")
        name = "--" + name[2:].replace("_", "-") if name.startswith("--") else name
        name, span = _ALIASES.get(name, name), words[at].span
        at += 1
        if name in _SWITCHES[launcher]:
            found[name] = Found(True, span)
        elif given:
            found[name] = Found(value, span)
        elif at < len(words):
            found[name] = Found(words[at].text, span)
            at += 1
    return found, words[at:]


def _processes(flags: Mapping[str, Found], launcher: Launcher) -> Iterator[tuple[str, Found]]:
    """The numbers of nodes and of processes on each, and the devices, as far as flags set them."""
    chosen = flags.get("--include")
    match = _CHOSEN.fullmatch(str(chosen.value)) if chosen else None
    if match and chosen:
        yield "include", Found(match[1].split(","), chosen.span)
        yield "nodes", Found(1, chosen.span)
        yield "per_node", Found(len(match[1].split(",")), chosen.span)
    for key, flag in zip(("nodes", "per_node"), _PROCESSES[launcher], strict=True):
        if flag in flags and str(flags[flag].value).isdigit():
            yield key, Found(int(flags[flag].value), flags[flag].span)
    if launcher == "deepspeed" and not match and "--num-nodes" not in flags:
        counted = flags.get("--num-gpus")
        if counted is not None and "--hostfile" not in flags:
            yield "nodes", Found(1, counted.span)
