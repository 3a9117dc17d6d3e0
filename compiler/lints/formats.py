"""Parse text of any format into nodes; the name or the content decides the format.

Nodes that come from one string have the place of that string, so they cannot be edited.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.component_values import interpolated
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.notebook import Notebook, is_notebook, read_notebook
from tunec.compiler.frontend.parse import parse
from tunec.compiler.frontend.python_settings import BY_ITSELF, ScriptArguments
from tunec.compiler.frontend.shell_words import BATCH_ENDINGS
from tunec.compiler.frontend.text import Origin, decode
from tunec.compiler.lints.kinds import fields_of
from tunec.schemas.frozen import replace
from tunec.schemas.source import Path, Span, dotted, lines_of, start_of

if TYPE_CHECKING:
    from tunec.compiler.frontend.shell_nodes import ShellDocument
    from tunec.compiler.lints.python_runs import Found

_ENDINGS: Final = {
    ".json": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    **dict.fromkeys((".env", ".sh", ".bash", *BATCH_ENDINGS), "shell"),
    ".py": "python",
    ".ipynb": "notebook",
}
_TOML: Final = re.compile(r"(?m)^\s*(?:\[[\w.\"-]+\]|[\w-]+\s+=\s+\S)")
_YAML: Final = re.compile(r"(?m)^[\w\"'-]+\s*:(?:\s|$)")
_MISSING: Final = "???"
"""omegaconf 2.3.0 base.py: a value that must be given on the command line."""
_CARD: Final = ".md"
_FENCE: Final = "---\n"
_ENGINE: Final = re.compile(
    r'\s*\{.*"(?:zero_optimization|train_micro_batch_size_per_gpu)"\s*:', re.DOTALL
)
_TWICE: Final = "E0107"
_PUT_IN: Final = re.compile(
    r"""\$\{[^{}]*\}|\?\?\?                    # variables, omegaconf's missing value
    |.*<(?:[A-Z][A-Z0-9]{2,}
        |[\w ./-]*(?i:your|path|name|dir|folder|file|model|data|token|key|id|url)[\w ./-]*)>.*
    |.*\{\{.*\}\}.*|.*\bYOUR_[A-Z_]+\b.*     # <path_to_data>, {{ path }}, YOUR_PATH
    """,
    re.VERBOSE,
)
_OPEN: Final = re.compile(r"<[A-Za-z][\w ./-]*>|\{\{|\bYOUR_")
_TEMPLATE: Final = re.compile(
    r"(?m)^(?P<before>[^#\n\"']*:[ \t]+|[ \t]*-[ \t]+)(?P<value>\{\{[^{}\n]+\}\})"
    r"(?=[ \t]*(?:,|#.*)?$)"
)
_STATEMENT: Final = re.compile(r"(?m)^[ \t]*\{%.*%\}[ \t]*$")
_MOST_COMMANDS: Final = 64
"""The maximum number of runs in a script; all further commands belong to the last one."""
_OF_A_TEMPLATE: Final = 4
"""The number of `${` that makes a file a template: a single one is more likely a mistake, since no
YAML reader substitutes variables."""


class Parsed(Struct, frozen=True):
    """One document of a file."""

    format: str
    text: str
    root: Node
    reader: str | None = None
    """The target that the text itself names; None: the keys decide."""
    unknown: frozenset[str] = field(default_factory=frozenset)
    """Keys whose values are known only when the file is run."""
    hidden: Mapping[str, Node] = field(default_factory=dict)
    """The top-level keys among `unknown` that are written in the file."""
    part: str = ""
    """For a script, the part: `launcher`, `flags`, `slurm`, `environment`."""
    references: tuple[tuple[str, str, Span], ...] = ()
    """Files that a script names: key, file, place."""
    program: str = ""
    """For flags, the program that is started with them."""
    kind: str = ""
    """The kind that the text itself names, by the class that a Python file calls."""
    runs: frozenset[int] = frozenset()
    """For a file with alternatives: the runs to which this document belongs; empty: all."""
    folder: str = ""
    """For a command: the folder in which it starts, relative to its script's folder."""
    loose: tuple[tuple[str, Span], ...] = ()
    """For flags: the words that belong to none of them, and name no file."""


Parses = tuple[tuple[Parsed, ...], list[Diagnostic]]


def parse_text(name: str, content: bytes | str, given: ScriptArguments = BY_ITSELF) -> Parses:
    """The documents of a file, given the arguments that start it, and every syntax fault."""
    return _notebook(name, content) if is_notebook(name) else _parsed(name, content, given)


def _parsed(name: str, content: bytes | str, given: ScriptArguments) -> Parses:
    text, fault = decode(content, Origin(name), bom_allowed=True)
    if fault is not None:
        return (), [fault]
    written = format_of(name, text)
    if written == "shell":
        return tuple(_shell(name, text)), []
    if written == "python":
        return _python(name, text, given)
    if written == "hostfile":
        return (hostfile(name, text),), []
    if written == "toml":
        return _toml(name, text)
    if written == "text":
        return _card(name, text)
    written = "json" if written == "yaml" and _is_json_of_engine(name, text) else written
    is_template = _TEMPLATE.search(text) is not None
    read = _put_in(text) if is_template else content
    root, faults = parse(read, name, "json" if written == "json" else "yaml")
    if root is None:
        return (), list(faults)
    root = interpolated(root, text)
    is_open = is_template or _MISSING in text or _OPEN.search(text) is not None
    if is_open or text.count("${") >= _OF_A_TEMPLATE:
        root, unknown = known_part(root)
        return (Parsed(written, text, root, unknown=unknown),), list(faults)
    return (Parsed(written, text, root),), list(faults)


def _put_in(text: str) -> str:
    """A template made parseable: placeholders become strings of the same length."""
    inert = _STATEMENT.sub(lambda found: "#" * len(found[0]), text)

    def variable(found: re.Match[str]) -> str:
        return f'{found["before"]}"${{{"x" * (len(found["value"]) - 5)}}}"'

    return _TEMPLATE.sub(variable, inert)


def _is_json_of_engine(name: str, text: str) -> bool:
    """Whether a file is DeepSpeed's JSON, whatever its ending: no reader treats it as YAML.

    accelerate 0.30.1 to 1.15.0 utils/deepspeed.py `HfDeepSpeedConfig.__init__`: json.load;
    deepspeed 0.14.5 to 0.19.8 runtime/config.py: hjson.load.
    """
    if not _ENGINE.match(text):
        return False
    root, faults = parse(text, name, "json")
    return root is not None and all(each.id == _TWICE for each in faults)


def format_of(name: str, text: str) -> str:
    """The format of a text: by the file name's ending, else by the content."""
    ending = _ENDINGS.get(PurePath(name).suffix.lower())
    if ending is not None:
        return ending
    if name.lower().endswith(_CARD) and text.startswith(_FENCE) and f"\n{_FENCE}" in text:
        return "text"
    from tunec.compiler.frontend.hostfile_nodes import looks_like_hostfile
    from tunec.compiler.frontend.shell_nodes import looks_like_shell

    if looks_like_hostfile(text):
        return "hostfile"
    if text.lstrip().startswith(("{", "[")) and not _TOML.match(text):
        return "json"
    if looks_like_shell(text):
        return "shell"
    return "toml" if _TOML.search(text) and not _YAML.search(text) else "yaml"


def _card(name: str, text: str) -> Parses:
    """The YAML between the two lines of dashes at the start of a data set card."""
    header = text.removeprefix(_FENCE).partition(f"\n{_FENCE}")[0]
    root, faults = parse(f"{header}\n", name, "yaml", line=2)
    return ((Parsed("text", text, root),) if root is not None else ()), list(faults)


def hostfile(name: str, text: str) -> Parsed:
    """Parse a hostfile of the deepspeed launcher, whatever its content looks like."""
    from tunec.compiler.frontend.hostfile_nodes import read_hostfile

    return Parsed("hostfile", text, read_hostfile(text, name), part="hostfile")


# ── shell ────────────────────────────────────────────────────────────────────────────────────────


def _shell(
    name: str, text: str, cells: Notebook | None = None, *, is_alone: bool = True
) -> Iterator[Parsed]:
    from tunec.compiler.frontend.shell_nodes import read_script

    script, origin = (text, Origin(name)) if cells is None else (cells.shell, cells.origin)
    parts = read_script(script, origin)
    numbers = _numbers(parts) if is_alone else {}
    for each in parts:
        root, unknown = known_part(each.node)
        hidden = hidden_part(each.node, unknown)
        reader = each.dialect if each.kind == "flags" else None
        named = tuple((dotted(ref.path), ref.file, ref.span) for ref in each.references)
        runs = frozenset({numbers[each.command]} if each.command in numbers else ())
        yield Parsed(
            *("shell", text, root, reader, unknown, hidden, each.kind, named, each.program),
            runs=runs,
            folder=each.folder,
            loose=each.loose,
        )


def _numbers(parts: Sequence["ShellDocument"]) -> Mapping[int, int]:
    """The run number of each training command if several train; the others are in all runs."""
    trains = dict.fromkeys(each.command for each in parts if _trains(each))
    runs = {command: min(at, _MOST_COMMANDS - 1) for at, command in enumerate(trains)}
    return runs if len(runs) > 1 else {}


def _trains(part: "ShellDocument") -> bool:
    """Whether a command starts processes, passes known flags, or names a config."""
    starts = part.kind == "launcher" and part.program != "python"
    return starts or part.dialect is not None or bool(part.references)


def _python(name: str, text: str, given: ScriptArguments) -> Parses:
    from tunec.compiler.lints.python_files import read_python

    calls, fault = read_python(text, Origin(name), given)
    return tuple(_of_call(each, text) for each in calls), [] if fault is None else [fault]


def _notebook(name: str, content: bytes | str) -> Parses:
    """What a notebook's cells configure and start; cells that are not Python are left out."""
    from tunec.compiler.lints.python_files import parse_cells, read_python

    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    cells, faults = read_notebook(text, name)
    if cells is None:
        return (), [*faults]
    script, broken = parse_cells(cells)
    calls, fault = read_python(script, cells.origin)
    found = tuple(_of_call(each, text) for each in calls)
    every = [*faults, *broken, *([] if fault is None else [fault])]
    return (*found, *_shell(name, text, cells, is_alone=not found)), every


def _of_call(call: "Found", text: str) -> Parsed:
    root, lost = known_part(call.root)
    hidden = {**hidden_part(call.root, lost), **call.late}
    unknown = lost | call.unknown
    return Parsed(
        *("python", text, root), unknown=unknown, hidden=hidden, kind=call.kind, runs=call.runs
    )


def said_elsewhere(parsed: Parsed, known: frozenset[str]) -> frozenset[str]:
    """The keys of a kind's file that are not fields of its class: other calls may set them."""
    if not parsed.kind:
        return frozenset()
    return known - fields_of(parsed.kind) - (parsed.root.fields or {}).keys()


def known_part(node: Node) -> tuple[Node, frozenset[str]]:
    """A tree without the values that are not known yet, and the paths of those values."""
    lost: set[str] = set()
    return _known(node, (), lost), frozenset(lost)


def hidden_part(node: Node, unknown: frozenset[str]) -> Mapping[str, Node]:
    """The top-level keys of a tree that are written with a value that is not known yet."""
    return {key: child for key, child in (node.fields or {}).items() if key in unknown}


def _known(node: Node, path: Path, lost: set[str]) -> Node:
    if node.fields is None:
        return node
    fields = {}
    for key, child in node.fields.items():
        if type(child.value).__name__ == "Unknown" or _is_put_in_later(child.value):
            lost.add(dotted((*path, key)))
        else:
            fields[key] = _known(child, (*path, key), lost)
    return replace(node, fields=fields)


def _is_put_in_later(value: Any) -> bool:
    """Whether a value is a placeholder that a person or a program replaces, and no template."""
    return isinstance(value, str) and "{%" not in value and _PUT_IN.fullmatch(value) is not None


# ── toml ─────────────────────────────────────────────────────────────────────────────────────────


def _toml(name: str, text: str) -> Parses:
    try:
        from tunec.compiler.frontend.toml_nodes import parse_toml
    except ImportError:
        return _toml_plain(name, text)
    root, faults = parse_toml(text, Origin(name))
    return ((Parsed("toml", text, root),) if root is not None else ()), list(faults)


def _toml_plain(name: str, text: str) -> Parses:
    """Parse with tomllib, which gives no places: a key's place is the line that begins with it."""
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        where = re.search(r"line (\d+), column (\d+)", str(fault))
        line, column = (int(each) for each in where.groups()) if where else (1, 1)
        span = Span(name, line, column, line, column + 1)
        return (), [error("E0101", f"not TOML: {str(fault).partition(' (at')[0].lower()}", span)]
    return (Parsed("toml", text, _placed(data, lines_of(text), start_of(name))),), []


def _placed(value: Any, lines: Sequence[str], at: Span) -> Node:
    if isinstance(value, dict):
        fields = {key: _under(key, inner, lines, at) for key, inner in value.items()}
        return Node(at, fields=fields)
    if isinstance(value, list):
        return Node(at, items=tuple(_placed(each, lines, at) for each in value))
    return Node(at, value=value)


def _under(key: str, value: Any, lines: Sequence[str], at: Span) -> Node:
    """The node of a key, whose value ends at the line's end or before a comment."""
    pattern = re.compile(
        rf"\s*(?P<key>[\"']?{re.escape(key)}[\"']?)\s*=\s*(?P<value>[^#]*?)\s*(?:#|$)"
    )
    table = re.compile(rf"\s*\[+\s*(?:.*\.)?(?P<key>{re.escape(key)})(?P<value>)\s*\]")
    for number in range(at.line, len(lines) + 1):
        found = pattern.match(lines[number - 1]) or table.match(lines[number - 1])
        if found:
            spans = [
                Span(at.file, number, found.start(part) + 1, number, found.end(part) + 1)
                for part in ("key", "value")
            ]
            node = _placed(value, lines, spans[1])
            return Node(node.span, node.value, spans[0], node.fields, node.items)
    return _placed(value, lines, at)


MAPPINGS: Final = (
    *("accelerator_config", "fsdp_config", "lr_scheduler_kwargs"),
    *("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
)
"""Fields whose text is read as JSON if it begins with a brace: transformers 4.40.2 to 5.23.0
training_args.py `TrainingArguments._VALID_DICT_FIELDS`; `deepspeed` is followed as a file."""
OPTIONS_FILE: Final = "fsdp_config"
"""The field whose other texts name a JSON file: `_process_fsdp_args` there."""


def with_inline_json(root: Node, read: Callable[[Node], str | None]) -> Node:
    """A trainer's keys, with each such mapping parsed from its text.

    `read` returns a named file's text, or None. Text that is not a JSON object stays as it is.
    """
    fields = root.fields or {}
    found = {key: _mapping(key, fields[key], read) for key in MAPPINGS if key in fields}
    changed = {key: node for key, node in found.items() if node is not None}
    return replace(root, fields={**fields, **changed}) if changed else root


def _mapping(key: str, node: Node, read: Callable[[Node], str | None]) -> Node | None:
    text = node.value
    if not isinstance(text, str):
        return None
    if not text.startswith("{"):
        text = read(node) if key == OPTIONS_FILE else None
    try:
        data = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
    return replace(_node(data, node), key_span=node.key_span) if isinstance(data, dict) else None


def _node(data: Any, at: Node) -> Node:
    if isinstance(data, dict):
        fields = {key: _node(value, at) for key, value in data.items()}
        return Node(at.span, fields=fields, is_inline_json=True)
    if isinstance(data, list):
        items = tuple(_node(value, at) for value in data)
        return Node(at.span, items=items, is_inline_json=True)
    return Node(at.span, _read(data), is_inline_json=True)


def _read(value: Any) -> Any:
    """transformers 4.40.2 to 5.23.0 training_args.py `_convert_str_dict`: "true" is true, "8" 8."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value.isdecimal():
        return int(value)
    return float(value) if value.replace(".", "", 1).isdecimal() else value
