"""Shell scripts to nodes: the processes that they start, with flags and variables.

read_script(text, origin) -> tuple[ShellDocument, ...] looks_like_shell(text) -> bool

Nothing is run and nothing is guessed: a value that the script does not contain literally is an
`Unknown`. Each command that starts a training run gives a document of kind `launcher` and, if it
passes flags, one of kind `flags`; `#SBATCH` lines give one of kind `slurm`; a file that sets
variables and starts nothing (`config.env`) gives one of kind `environment`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.frontend.hydra_overrides import file_of, is_composed, overridden, reader_of
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.shell_flags import (
    Builder,
    Unknown,
    UnknownValue,
    around,
    hidden_in,
    is_override,
)
from tunec.compiler.frontend.shell_launch import STARTERS, Launch, flags_of, is_flag, launched
from tunec.compiler.frontend.shell_references import (
    Reference,
    dialect_of,
    flag_references,
    launcher_references,
    positional_references,
)
from tunec.compiler.frontend.shell_script import Run, Script, follow
from tunec.compiler.frontend.shell_variables import Field
from tunec.compiler.frontend.shell_words import whole
from tunec.compiler.frontend.text import MAX_BYTES, Origin, Places
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span

_KEYS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "deepspeed": {
        "nodes": ("num_nodes",),
        "per_node": ("num_gpus", "num_accelerators"),
        "hostfile": ("hostfile", "H"),
        "master_port": ("master_port",),
    },
    "torchrun": {
        "nodes": ("nnodes",),
        "per_node": ("nproc_per_node",),
        "master_port": ("master_port",),
    },
    "accelerate": {
        "nodes": ("num_machines",),
        "processes": ("num_processes",),
        "hostfile": ("deepspeed_hostfile",),
        "master_port": ("main_process_port",),
    },
    "srun": {
        "nodes": ("nodes", "N"),
        "per_node": ("ntasks_per_node",),
        "processes": ("ntasks", "n"),
    },
    "mpirun": {
        "per_node": ("npernode", "N", "ppn", "perhost"),
        "processes": ("np", "n", "c"),
        "hostfile": ("hostfile",),
    },
}
"""deepspeed 0.19.8 launcher/runner.py; torch 2.13.0 distributed/run.py; accelerate 1.15.0
commands/launch.py; Slurm's srun manual page; Open MPI 5.0 mpirun manual page."""
_INCLUDE: Final = ("include", "i", "deepspeed_inclusion_filter")
_EXCLUDE: Final = ("exclude", "e", "deepspeed_exclusion_filter")
_HERE: Final = re.compile(r"localhost:(\d+(?:,\d+)*)")
_COUNTED: Final = ("nodes", "per_node", "processes", "master_port")
_BY_VARIABLES: Final = ("ms-swift", "llamafactory")
_VARIABLES: Final = {"nodes": "NNODES", "per_node": "NPROC_PER_NODE", "master_port": "MASTER_PORT"}
"""Variables that programs which start torchrun themselves pass to it: ms-swift 4.0.4 to 4.6.0
cli/main.py `get_torchrun_args`; llamafactory 0.9.1 to 0.9.5 launcher.py `launch`."""


def processes(launcher: str, flags: Node) -> dict[str, Node]:
    """The nodes, the processes on each, and the devices, as far as a launcher's flags set them.

    A word that is no number (`--nproc_per_node gpu`, `--nnodes 1:4`) stays among the flags.
    """
    found = dict(_counted(launcher, flags))
    if launcher not in ("deepspeed", "accelerate"):
        return found
    found |= dict(_filters(flags))
    if launcher == "deepspeed":
        found |= dict(_on_one_node(found))
    return found


def _counted(launcher: str, flags: Node) -> Iterator[tuple[str, Node]]:
    for key, names in _KEYS.get(launcher, {}).items():
        node = next((flags.child(name) for name in names if flags.child(name)), None)
        if node is None:
            continue
        is_number = isinstance(node.value, int) and not isinstance(node.value, bool)
        if key not in _COUNTED or is_number or isinstance(node.value, Unknown):
            yield key, node


def _filters(flags: Node) -> Iterator[tuple[str, Node]]:
    for key, names in (("include", _INCLUDE), ("exclude", _EXCLUDE)):
        node = next((flags.child(name) for name in names if flags.child(name)), None)
        here = _HERE.fullmatch(node.value) if node and isinstance(node.value, str) else None
        if node is not None and here is not None:
            items = tuple(
                replace(node, value=name, written=None, key_span=None)
                for name in here[1].split(",")
            )
            yield key, Node(node.span, key_span=node.key_span, items=items)
        elif node is not None:
            yield f"{key}_filter", node


def _on_one_node(found: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
    """One node, if devices of this host are selected, or counted without a host file.

    deepspeed 0.14.5 to 0.19.8 launcher/runner.py `main`. A host file at the default path,
    /job/hostfile, would be read as well; the script does not show whether there is one.
    """
    include = found.get("include")
    if include is not None:
        yield "nodes", replace(include, items=None, value=1)
        yield "per_node", replace(include, items=None, value=len(include.items or ()))
    elif "per_node" in found and not found.keys() & {"nodes", "hostfile"}:
        yield "nodes", replace(found["per_node"], value=1, written=None)


def _by_variables(
    launcher: str, environment: Mapping[str, Field], builder: Builder
) -> Iterator[tuple[str, Node]]:
    """The processes that a program starts by itself, if variables configure several."""
    if launcher not in _BY_VARIABLES or _VARIABLES["per_node"] not in environment:
        return
    for key, name in _VARIABLES.items():
        node = builder.leaf(environment[name]) if name in environment else None
        if node is not None and type(node.value) is int:
            yield key, replace(node, key_span=node.span)


# ── Slurm's batch options ────────────────────────────────────────────────────────────────────────

SBATCH: Final = re.compile(r"""(?m)^#SBATCH[ \t]+((?:[^\n#"'\\]|\\.|"[^"\n]*"|'[^'\n]*'|["'])*)""")
"""A line of options for Slurm, up to a remark: slurm 17.11 src/sbatch/opt.c `_get_argument`."""
_WORD: Final = re.compile(r"[^\s#]\S*")
_SHORT: Final[Mapping[str, str]] = {
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus_per_task",
    "G": "gpus",
    "t": "time",
    "p": "partition",
    "J": "job_name",
    "A": "account",
    "q": "qos",
    "w": "nodelist",
    "x": "exclude",
    "o": "output",
    "e": "error",
    "a": "array",
    "C": "constraint",
    "D": "chdir",
    "d": "dependency",
    "L": "licenses",
    "s": "oversubscribe",
}
"""Slurm's sbatch manual page."""


_NAMES: Final = frozenset({"job_name", "partition", "account", "qos", "reservation", "nodelist"})
"""Options whose values are names, also where they look like numbers: `--job-name=007`."""


def is_batch_script(text: str) -> bool:
    """Whether a text has `#SBATCH` lines."""
    return SBATCH.search(text) is not None


def slurm(text: str, builder: Builder) -> Node:
    """The options in the `#SBATCH` lines, by their long names; values such as `time` stay texts."""
    source = whole(text)
    fields: dict[str, Node] = {}
    for line in SBATCH.finditer(text):
        words = [
            Field(source.cut(*each.span()), source.cut(*each.span()))
            for each in _WORD.finditer(text, *line.span(1))
        ]
        fields |= _options(words, builder)
    return builder.mapping(fields)


def _options(words: list[Field], builder: Builder) -> dict[str, Node]:
    found: dict[str, Node] = {}
    for at, word in enumerate(words):
        name, length, value = _option(word, words[at + 1 : at + 2])
        if not name:
            continue
        key = builder.span(replace(word, chars=word.chars.cut(0, length)))
        read = builder.text if name in _NAMES else builder.leaf
        node = Node(key, value=True) if value is None else read(_unquoted(value))
        found[name] = replace(node, key_span=key)
    return found


def _option(word: Field, following: list[Field]) -> tuple[str, int, Field | None]:
    """An option's long name, the length of its own word, and its value.

    `--nodes=2`, `--nodes 2`, `-N 2` and `-N2` are equivalent.
    """
    text = word.text
    after = following[0] if following and not following[0].text.startswith("-") else None
    if text.startswith("--"):
        name, given, _ = text.partition("=")
        value = word.cut(len(name) + 1) if given else after
        return name[2:].replace("-", "_"), len(name), value
    if text[:1] != "-" or text[1:2] not in _SHORT:
        return "", 0, None
    attached = word.cut(3 if text[2:3] == "=" else 2)
    return _SHORT[text[1]], 2, attached if len(text) > 2 else after


def _unquoted(value: Field) -> Field:
    text = value.text
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return replace(value, chars=value.chars.cut(1, len(text) - 1))
    return value


_ASSIGNMENT: Final = re.compile(r"(export[ \t]+)?[A-Za-z_]\w*\+?=")
_SHEBANG: Final = re.compile(r"#!\s*\S*(?:/|\s)(?:ba|z|k|da)?sh\b")
_STARTS: Final = re.compile(
    r"^[ \t]*(?:(?:\w+=\S*|exec|nohup|sudo|time|cd[ \t]+\S+[ \t]*&&)[ \t]+)*(?:deepspeed|torchrun|"
    r"accelerate[ \t]+(?:launch|--\w+)|python[\d.]*|llamafactory-cli|axolotl|trl|simpletuner|srun|"
    r"mpirun|mpiexec)[ \t]+\S",
    re.MULTILINE,
)


Kind = Literal["launcher", "flags", "slurm", "environment"]


class ShellDocument(Struct, frozen=True):
    """One document of a script."""

    kind: Kind
    program: str
    """The launcher; for flags, the started program; `sbatch`; empty for an environment."""
    node: Node
    """A mapping. A leaf's `written` is the word; an unknown value is an `Unknown`."""
    command: int = -1
    """The number of the command in the script, equal for its launcher and flags. -1: the whole
    file."""
    dialect: str | None = None
    """The program of the flags, by their names; None if these do not show it, `script` if they are
    the user's own."""
    references: tuple[Reference, ...] = ()
    unknown: tuple[UnknownValue, ...] = ()
    loose: tuple[tuple[str, Span], ...] = ()
    """Words that belong to no flag."""
    folder: str = ""
    """The directory in which the command starts, relative to the script; empty: the same, or
    unknown."""


def read_script(text: str, origin: Origin | str) -> tuple[ShellDocument, ...]:
    """The documents of the training runs that a shell script starts.

    Raises nothing; a text of more than `MAX_BYTES` characters has none.
    """
    if len(text) > MAX_BYTES:
        return ()
    place = Origin(origin) if isinstance(origin, str) else origin
    builder = Builder(Places(text, place))
    script = follow(whole(text))
    found = tuple(_commands(script, builder))
    if not found and script.variables:
        found = (_environment(script, builder),)
    batch = _document("slurm", "sbatch", slurm(text, builder), -1)
    return (batch, *found) if batch.node.fields else found


def looks_like_shell(text: str) -> bool:
    """Whether a text is a shell script, by its content."""
    if _SHEBANG.match(text) or is_batch_script(text) or _is_environment(text):
        return True
    return starts_training(text) and not text.lstrip().startswith(("{", "["))


def starts_training(text: str) -> bool:
    """Whether any line of a text starts a training run."""
    return _STARTS.search(text) is not None


def _is_environment(text: str) -> bool:
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line and not line.startswith("#")]
    return bool(said) and all(_ASSIGNMENT.match(line) for line in said)


# ── commands ─────────────────────────────────────────────────────────────────────────────────────


def _commands(script: Script, builder: Builder) -> Iterator[ShellDocument]:
    number = 0
    for run in script.runs:
        launches = launched(run.fields)
        for launch in launches:
            yield replace(_launcher(launch, run, number, builder), folder=run.folder)
            if launch.launcher not in STARTERS and launch.arguments:
                yield replace(_flags(launch, number, builder), folder=run.folder)
        number += bool(launches)


def _launcher(launch: Launch, run: Run, number: int, builder: Builder) -> ShellDocument:
    flags = builder.flags(tuple(each for each in launch.flags if is_flag(each[0])))
    name = replace(builder.text(launch.name), value=launch.launcher)
    hidden = next((word for word, _ in launch.flags if not is_flag(word)), None)
    counted = () if hidden is None else _KEYS.get(launch.launcher, ())
    fields = {
        "launcher": replace(name, key_span=name.span),
        **{key: builder.leaf(hidden) for key in counted if hidden is not None},
        **processes(launch.launcher, flags),
        **dict(_by_variables(launch.launcher, run.environment, builder)),
        "environment": _variables(run.environment, builder),
        "flags": flags,
    }
    if launch.script:
        fields["script"] = builder.words(launch.script)
    node = Node(around(list(fields.values()), builder.places), fields=fields)
    document = _document("launcher", launch.launcher, node, number)
    return replace(document, references=launcher_references(launch.launcher, flags))


def _flags(launch: Launch, number: int, builder: Builder) -> ShellDocument:
    if is_composed(launch.started):
        return _composed(launch, number, builder)
    flags, loose = flags_of(launch.arguments)
    node = builder.flags(flags)
    dialect = dialect_of(launch.started, node)
    given = [(word.text, builder.span(word)) for word in loose]
    found = positional_references(dialect, launch.started, given)
    if dialect == "llamafactory":
        node = builder.with_overrides(node, loose)
        loose = tuple(word for word in loose if not is_override(word))
    return replace(
        _document("flags", launch.started, node, number),
        dialect=dialect,
        references=(*found, *flag_references(dialect, node)),
        loose=tuple((word.word.text, builder.span(word)) for word in loose[len(found) :]),
    )


def _composed(launch: Launch, number: int, builder: Builder) -> ShellDocument:
    """The keys that Hydra composes over the program's own file, or over another one."""
    node, others = overridden(launch.arguments, builder)
    flags, loose = flags_of(others)
    given = builder.flags(flags)
    return replace(
        _document("flags", launch.started, node, number),
        dialect=reader_of(launch.started, given),
        references=tuple(file_of(given)),
        loose=tuple((word.word.text, builder.span(word)) for word in loose),
    )


def _environment(script: Script, builder: Builder) -> ShellDocument:
    return _document("environment", "", _variables(script.variables, builder), -1)


def _variables(held: Mapping[str, Field], builder: Builder) -> Node:
    """Variables as texts, with the place of the name in each assignment."""
    fields = {}
    for name, field in held.items():
        length = len(name) if field.word.text.startswith(name) else None
        span = builder.span(replace(field, chars=field.word.cut(0, length)))
        fields[name] = replace(builder.text(field), key_span=span)
    return builder.mapping(fields)


def _document(kind: Kind, program: str, node: Node, number: int) -> ShellDocument:
    return ShellDocument(kind, program, node, number, unknown=tuple(hidden_in(node)))
