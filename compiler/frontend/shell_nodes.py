"""Launch scripts as documents: what a `train.sh` tells its launcher and its trainer, with places.

    read_script(text, file) -> tuple[ShellDocument, ...]
    looks_like_shell(text) -> bool

Nothing is run and nothing is guessed: a value that the script does not say literally is an
`Unknown`. Each command that starts a training run gives a document of kind `launcher` and, if it
passes flags, one of kind `flags`; `#SBATCH` lines give one of kind `slurm`; a file that sets
variables and starts nothing (`config.env`) gives one of kind `environment`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.shell_flags import (
    Builder,
    Unknown,
    UnknownValue,
    around,
    hidden_in,
    is_override,
)
from tunec.compiler.frontend.shell_launch import STARTERS, Launch, flags_of, launched
from tunec.compiler.frontend.shell_processes import is_batch_script, processes, slurm
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

__all__ = [
    "Reference",
    "ShellDocument",
    "Unknown",
    "UnknownValue",
    "looks_like_shell",
    "read_script",
]

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
    """One thing that a script says."""

    kind: Kind
    program: str
    """The launcher; of flags, what is started; `sbatch`; nothing for an environment."""
    node: Node
    """A mapping. A leaf's `written` is the word; a value that is not known is an `Unknown`."""
    command: int = -1
    """Which command of the script; launcher and flags of one share it. -1: the whole file."""
    dialect: str | None = None
    """Whose flags they are, by their names; None where these do not tell, `script` where they are
    the program's own."""
    references: tuple[Reference, ...] = ()
    unknown: tuple[UnknownValue, ...] = ()
    loose: tuple[tuple[str, Span], ...] = ()
    """Words that belong to no flag."""


def read_script(text: str, file: str) -> tuple[ShellDocument, ...]:
    """What a shell script says of the training runs that it starts.

    Raises nothing; a text of more than `MAX_BYTES` characters gives nothing.
    """
    if len(text) > MAX_BYTES:
        return ()
    builder = Builder(Places(text, Origin(file)))
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
    return bool(_STARTS.search(text)) and not text.lstrip().startswith(("{", "["))


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
            yield _launcher(launch, run, number, builder)
            if launch.launcher not in STARTERS and launch.arguments:
                yield _flags(launch, number, builder)
        number += bool(launches)


def _launcher(launch: Launch, run: Run, number: int, builder: Builder) -> ShellDocument:
    flags = builder.flags(launch.flags)
    name = replace(builder.text(launch.name), value=launch.launcher)
    fields = {
        "launcher": replace(name, key_span=name.span),
        **processes(launch.launcher, flags),
        "environment": _variables(run.environment, builder),
        "flags": flags,
    }
    if launch.script:
        fields["script"] = builder.words(launch.script)
    node = Node(around(list(fields.values()), builder.places), fields=fields)
    document = _document("launcher", launch.launcher, node, number)
    return replace(document, references=launcher_references(launch.launcher, flags))


def _flags(launch: Launch, number: int, builder: Builder) -> ShellDocument:
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


def _environment(script: Script, builder: Builder) -> ShellDocument:
    return _document("environment", "", _variables(script.variables, builder), -1)


def _variables(held: Mapping[str, Field], builder: Builder) -> Node:
    """Variables as texts, each key's place being the name in its assignment."""
    fields = {}
    for name, field in held.items():
        length = len(name) if field.word.text.startswith(name) else None
        span = builder.span(replace(field, chars=field.word.cut(0, length)))
        fields[name] = replace(builder.text(field), key_span=span)
    return builder.mapping(fields)


def _document(kind: Kind, program: str, node: Node, number: int) -> ShellDocument:
    return ShellDocument(kind, program, node, number, unknown=tuple(hidden_in(node)))
