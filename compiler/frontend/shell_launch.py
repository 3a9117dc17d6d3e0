"""The commands that start a training run, and where the launcher's words end."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.shell_variables import UNKNOWN, Field
from tunec.schemas.frozen import replace

Flags = tuple[tuple[Field, tuple[Field, ...]], ...]
"""Flags as written, each with its values."""


class Launch(Struct, frozen=True):
    """One command that starts a training run."""

    launcher: str
    name: Field
    """The launcher's own word."""
    flags: Flags
    """The launcher's own flags, and words that expand to further ones, `$DISTRIBUTED_ARGS`."""
    started: str
    """The started program: `train.py`, `trl.scripts.sft`, `llamafactory-cli train`."""
    script: tuple[Field, ...]
    """The program with its arguments."""
    arguments: tuple[Field, ...]


_SWITCHES: Final[Mapping[str, frozenset[str]]] = {
    "python": frozenset({"-u", "-B", "-E", "-s", "-S", "-I", "-O", "-OO", "-v", "-P"}),
    "torchrun": frozenset(
        {
            *("-m", "--module", "--no-python", "--run-path", "--standalone", "--use-env"),
            *("--virtual-local-rank", "--use_env"),
        }
    ),
    "deepspeed": frozenset(
        {
            *("--module", "--no-python", "--no-local-rank", "--no-ssh", "--no-ssh-check"),
            *("--force-multi", "--save-pid", "--bind-cores-to-rank", "-q", "--quiet"),
        }
    ),
    "accelerate": frozenset(
        {
            *("--cpu", "--debug", "--downcast-bf16", "--dynamo-use-dynamic", "-q", "--quiet"),
            *("--dynamo-use-fullgraph", "--dynamo-use-regional-compilation", "-m", "--module"),
            *("--enable-cpu-affinity", "--fp8-use-autocast-during-eval", "--multi-gpu"),
            *("--no-python", "--no-tpu-cluster", "--same-network", "--tpu", "--tpu-cluster"),
            *("--tpu-use-sudo", "--use-deepspeed", "--use-fsdp", "--use-megatron-lm"),
            *("--use-parallelism-config", "--ipex", "--use-xpu"),
        }
    ),
    "srun": frozenset(
        {
            *("-l", "--label", "-K", "--exclusive", "--unbuffered", "-u", "-v", "--verbose"),
            *("--overlap", "-O", "--overcommit", "-Q", "--quiet", "--pty", "-s", "--oversubscribe"),
            *("--kill-on-bad-exit", "--no-container-mount-home", "--container-writable"),
        }
    ),
}
"""Flags without a value. python 3.11 manual page; torch 2.13.0 distributed/run.py
`get_args_parser`; deepspeed 0.19.8 launcher/runner.py `parse_args`; accelerate 1.15.0
commands/launch.py `launch_command_parser`; Slurm's srun manual page (`--kill-on-bad-exit` and
`--exclusive` take a value only behind `=`)."""

_MODULES: Final[Mapping[str, str]] = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
}
_COMMANDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "llamafactory-cli": ("llamafactory", ("train",)),
    "lmf": ("llamafactory", ("train",)),
    "axolotl": ("axolotl", ("train", "preprocess")),
    "trl": ("trl", ("sft", "dpo", "grpo", "kto", "orpo", "reward", "rloo", "cpo")),
    "simpletuner": ("simpletuner", ("train",)),
    "swift": ("ms-swift", ("pt", "sft", "rlhf")),
}
"""Programs that start the processes themselves: the entry points of the packages' metadata, and the
subcommands that read a training configuration."""

_LAUNCHERS: Final = ("deepspeed", "torchrun")
_WRAPPERS: Final = frozenset(
    {
        *("exec", "nohup", "command", "sudo", "env", "nice", "ionice", "numactl", "stdbuf", "uv"),
        *("timeout", "taskset", "conda", "mamba", "micromamba", "poetry", "pipenv", "hatch"),
        *("singularity", "apptainer", "docker", "podman", "xvfb-run", "unbuffer", "setsid"),
        *("torch-run", "nsys", "pdsh", "ssh", "ray"),
    }
)
_RUNNERS: Final = frozenset({"uv", "conda", "mamba", "micromamba", "poetry", "pipenv", "hatch"})
"""Wrappers that start a program only by their subcommand `run`: `uv pip` and `conda install` do
not."""
_INSTALLERS: Final = frozenset({"pip", "pip3", "apt", "apt-get"})
STARTERS: Final = ("srun", "mpirun")
"""Programs that start one command several times, on one or several nodes."""
_MPI: Final = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun"})
_COUNTS_OF_MPI: Final = frozenset(
    {
        *("-np", "--np", "-n", "-c", "-npernode", "--npernode", "-N", "-ppn", "-perhost"),
        *("-H", "-host", "--host", "-hosts", "--map-by", "-map-by", "--hostfile", "-hostfile"),
    }
)
"""Open MPI 5.0 mpirun manual page; Intel MPI 2021 and MPICH 4 mpiexec: flags for the number of
processes and their hosts."""
_PYTHON: Final = re.compile(r"python[\d.]*(\.exe)?")
_NEAR: Final = 64
"""The number of words after an unknown one in which the script is searched."""
_SCRIPT: Final = re.compile(r"[^-].*\.(py|sh)\Z", re.DOTALL)
NUMBER: Final = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def launched(arguments: Sequence[Field]) -> tuple[Launch, ...]:
    """The launches of a command: none, one, or `srun` with the one that it starts."""
    if not arguments:
        return ()
    found = _program(arguments)
    if found is not None:
        return (found,)
    name = _base(arguments[0])
    if name == "srun":
        return _by_slurm(arguments)
    if name in _MPI:
        return _by_mpi(arguments)
    is_cut_off = name.replace(",", "").isdigit()  # CUDA_VISIBLE_DEVICES=0, 1 torchrun ...
    if name in _WRAPPERS or is_cut_off or not arguments[0].is_known:
        return _behind(arguments)
    return ()


def _behind(arguments: Sequence[Field]) -> tuple[Launch, ...]:
    """The first launch after a wrapper, or after an unknown word."""
    words = arguments[1 : min(len(arguments), 64)]
    if _base(arguments[0]) in _RUNNERS and all(each.text != "run" for each in words):
        return ()
    for at, word in enumerate(words, 1):
        if _base(word) in _INSTALLERS:
            return ()
        if _base(word) == "srun":
            return _by_slurm(arguments[at:])
        if _base(arguments[at]) in _MPI:
            return _by_mpi(arguments[at:])
        found = _program(arguments[at:])
        if found is not None:
            return (found,)
    return ()


def _by_slurm(arguments: Sequence[Field]) -> tuple[Launch, ...]:
    flags, rest = _flags(arguments[1:], "srun")
    inner = launched(rest) or _behind([arguments[0], *rest])
    name = _shown(rest[0]) if rest else ""
    own = Launch("srun", arguments[0], flags, name, tuple(rest), ())
    return (own, *inner) if inner or name.endswith((".py", ".sh")) else ()


def _by_mpi(arguments: Sequence[Field]) -> tuple[Launch, ...]:
    """`mpirun` with the launch that it starts, and its flags for the processes and hosts."""
    for at in range(1, min(len(arguments), 64)):
        inner = _program(arguments[at:])
        if inner is not None:
            words, rest = arguments[1:at], tuple(arguments[at:])
            flags = tuple(
                (word, (words[n + 1],))
                for n, word in enumerate(words[:-1])
                if word.text in _COUNTS_OF_MPI
            )
            return (Launch("mpirun", arguments[0], flags, _shown(rest[0]), rest, ()), inner)
    return ()


def _program(arguments: Sequence[Field]) -> Launch | None:
    first, rest = arguments[0], arguments[1:]
    name = _base(first)
    if name in _LAUNCHERS:
        return _launch(name, first, rest)
    if name == "accelerate" and rest and rest[0].text == "launch":
        return _launch(name, first, rest[1:])
    if name == "accelerate" and rest and rest[0].text.startswith("--") and _hides_flags(rest):
        return _launch(name, first, rest)
    if name in _COMMANDS:
        return _by_itself(name, first, rest)
    is_python = _PYTHON.fullmatch(name) is not None
    if is_python or (not first.is_known and "python" in first.word.text.lower()):
        return _python(first, rest)
    return None


def _by_itself(name: str, first: Field, rest: Sequence[Field]) -> Launch | None:
    launcher, words = _COMMANDS[name]
    if not rest or rest[0].text not in words:
        return None
    started = f"{name} {rest[0].text}"
    at = next((n for n, word in enumerate(rest) if word.text == "--"), len(rest))
    if launcher == "axolotl" and at < len(rest):
        return _handed_on(first, rest[:at], rest[at + 1 :], started)
    return Launch(launcher, first, (), started, (first, *rest), tuple(rest[1:]))


def _handed_on(first: Field, own: Sequence[Field], flags: Sequence[Field], started: str) -> Launch:
    """`axolotl train f.yaml --launcher torchrun -- --nproc_per_node=4`: its launcher gets the rest.

    axolotl 0.13.2 to 0.19.0 cli/main.py `train`, cli/utils/train.py `launch_training`.
    """
    texts = [word.text for word in own]
    named = "torchrun" in texts or "--launcher=torchrun" in texts
    launcher = "torchrun" if named else "accelerate"
    return Launch(
        launcher, first, _flags(flags, launcher)[0], started, (first, *own), tuple(own[1:])
    )


_TOOLS: Final = frozenset({"pip", "venv", "virtualenv", "ensurepip", "build", "ipykernel"})
"""Modules that train nothing, so that their flags are ignored."""


def _python(first: Field, rest: Sequence[Field]) -> Launch | None:
    switches = _SWITCHES["python"]
    at = next((n for n, each in enumerate(rest) if each.text not in switches), len(rest))
    behind = rest[at:]
    if not behind or behind[0].text == "-c":
        return None
    if behind[0].text != "-m":
        is_script = behind[0].text.endswith(".py") or not behind[0].is_known
        return _started("python", first, (), behind) if is_script else None
    if len(behind) < 2 or behind[1].text in _TOOLS:
        return None
    return _python_module(first, behind[1], behind[2:])


def _python_module(first: Field, module: Field, rest: Sequence[Field]) -> Launch:
    launcher = _MODULES.get(module.text)
    if launcher is None:
        return _started("python", first, (), [module, *rest])
    by_name = launcher == "accelerate" and rest[:1] and rest[0].text == "launch"
    return _launch(launcher, first, rest[1:] if by_name else rest)


def _launch(launcher: str, first: Field, rest: Sequence[Field]) -> Launch:
    flags, behind = _flags(rest, launcher)
    return _started(launcher, first, flags, behind)


def _started(launcher: str, first: Field, flags: Flags, rest: Sequence[Field]) -> Launch:
    """The script with its arguments, without a final `"$@"`, which passes on the caller's."""
    script = [each for each in rest if each.word.text not in ('"$@"', "$@", '"$*"', "$*")]
    started = _shown(script[0]) if script else ""
    inner = _COMMANDS.get(_base(script[0])) if script else None
    if inner is not None and script[1:] and script[1].text in inner[1]:
        started = f"{_base(script[0])} {script[1].text}"
        return Launch(launcher, first, flags, started, tuple(script), tuple(script[2:]))
    return Launch(launcher, first, flags, started, tuple(script), tuple(script[1:]))


def _flags(words: Sequence[Field], launcher: str) -> tuple[Flags, Sequence[Field]]:
    """A launcher's own flags, unknown ones included, and the words from the script on."""
    found: list[tuple[Field, tuple[Field, ...]]] = []
    at = 0
    while at < len(words):
        word = words[at]
        is_hidden = not word.is_known and not word.text.startswith("-")
        if is_hidden and _hides_flags(words, at + 1):
            found.append((word, ()))
            at += 1
            continue
        if word.text == "--":
            at += 1  # argparse: the end of the flags, and no word of its own
            break
        if not word.text.startswith("-"):
            break
        at += 1
        if "=" in word.text or _is_switch(word.text, launcher):
            found.append((word, ()))
        elif at < len(words) and not is_flag(words[at]):
            found.append((word, (words[at],)))
            at += 1
        else:
            found.append((word, ()))
    return tuple(found), words[at:]


def _hides_flags(words: Sequence[Field], at: int = 0) -> bool:
    """Whether the script follows an unknown word, as in `$ARGS train.py`."""
    near = words[at : at + _NEAR]
    return any(each.text == "-m" or _SCRIPT.match(each.text) for each in near)


def _is_switch(text: str, launcher: str) -> bool:
    spelled = text if not text.startswith("--") else "--" + text[2:].replace("_", "-")
    return spelled in _SWITCHES[launcher]


def flags_of(arguments: Sequence[Field]) -> tuple[Flags, tuple[Field, ...]]:
    """A trainer's flags with the words after each, and the words that belong to none."""
    found: list[tuple[Field, list[Field]]] = []
    loose: list[Field] = []
    for word in arguments:
        if is_flag(word):
            found.append((word, []))
        elif found and "=" not in found[-1][0].text:
            found[-1][1].append(word)
        else:
            loose.append(word)
    return tuple((flag, tuple(values)) for flag, values in found), tuple(loose)


def is_flag(word: Field) -> bool:
    """Whether argparse reads a word as a flag: it begins with a dash and is no negative number."""
    text = word.text
    return len(text) > 1 and text.startswith("-") and NUMBER.fullmatch(text) is None


def named(flag: Field) -> tuple[str, Field | None]:
    """A flag's name, with `_` for `-`, and the value after its `=`, if it has one."""
    name, given, _ = flag.text.partition("=")
    value = flag.cut(len(name) + 1) if given else None
    return name.lstrip("-").replace("-", "_").replace(UNKNOWN, ""), value


def _base(word: Field) -> str:
    return word.text.rpartition("/")[2]


def _shown(word: Field) -> str:
    return word.text if word.is_known else replace(word, chars=word.word).text
