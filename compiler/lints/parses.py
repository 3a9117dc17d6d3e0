"""The contents of files and their owners, and syntax errors as their reader treats them."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.json_nodes import COMMA, COMMENT, outline
from tunec.compiler.frontend.python_settings import ScriptArguments
from tunec.compiler.frontend.text import MAX_BYTES, Origin, decode
from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.formats import Parsed, parse_text
from tunec.compiler.lints.kinds import known_keys
from tunec.compiler.lints.recognition import recognised
from tunec.compiler.lints.rule import CONSEQUENCES, Consequence
from tunec.compiler.target import File, Target
from tunec.schemas.frozen import replace
from tunec.schemas.source import lines_of

Known = tuple[Target, File, str]
"""The target, its file, and its name in rules."""


class Parses(Struct):
    """The parsed files, for those who read the same files again with others.

    It is for one set of targets and of readers.
    """

    _parsed: dict[
        tuple[str, bytes | str, ScriptArguments], tuple[tuple[Parsed, ...], list[Diagnostic]]
    ] = field(default_factory=dict)
    _known: dict[int, Known | None] = field(default_factory=dict)
    """By the identity of the parsed content, which `_parsed` keeps."""

    def parsed(
        self,
        name: str,
        content: bytes | str,
        given: ScriptArguments,
        targets: Mapping[str, Target],
        readers: Sequence[str],
    ) -> tuple[tuple[Parsed, ...], list[Diagnostic]]:
        """The documents of a file, and every syntax error; `given`: what starts it.

        For long data that no known program reads, only the first level has nodes.
        """
        key = name, content, given
        if key not in self._parsed:
            first = _first_level(name, content)
            if first is not None and recognised(first, targets, readers, name) is None:
                self._parsed[key] = (first,), []
            else:
                documents, faults = parse_text(name, content, given)
                self._parsed[key] = tuple(map(listed, documents)), faults
        return self._parsed[key]

    def known(
        self, name: str, parsed: Parsed, targets: Mapping[str, Target], readers: Sequence[str]
    ) -> Known | None:
        """The owner of a document of that file; None if no known program reads it."""
        at = id(parsed)
        if at not in self._known:
            self._known[at] = recognised(parsed, targets, readers, name)
        return self._known[at]


def _first_level(name: str, content: bytes | str) -> Parsed | None:
    """The first level of a long JSON file; None for a short one, and if that does not suffice."""
    if not name.lower().endswith(".json") or not _LONGEST < len(content) <= MAX_BYTES:
        return None
    text, fault = decode(content, Origin(name), bom_allowed=True)
    root = outline(text, Origin(name)) if fault is None else None
    return None if root is None else listed(Parsed("json", text, root))


def listed(parsed: Parsed) -> Parsed:
    """A list of mappings as a mapping by position, `[0]`: SimpleTuner's data sets."""
    items = parsed.root.items
    if not items or any(each.fields is None and not isinstance(each.value, dict) for each in items):
        return parsed
    fields = {f"[{at}]": each for at, each in enumerate(items)}
    return replace(parsed, root=replace(parsed.root, items=None, fields=fields))


_LENIENT: Final = frozenset({COMMENT, COMMA})
_STRICT: Final = ("huggingface", "simpletuner", "accelerate")
_KEY: Final = re.compile(r"""(?m)(?:^|[{,])[ \t]*(?:- )?["']?([A-Za-z][\w-]*)["']?[ \t]*[:=]""")
_SHARE: Final = 0.25
_LONGEST: Final = 1 << 16
"""Characters of a config's text; the recognition ignores the rest."""
_LONG: Final = 1_000
"""The number of characters without a key from which a text counts as data."""
_STRANGE: Final = "none of the programs that are known has a file with such keys"
_OF_OTHERS: Final = "no program that is known reads the file"
_KEYLESS: Final = "nothing in it has the form of a key"
_OF_CLUSTERS: Final = ("kubeflow", "skypilot")
"""Kinds that hold one run among much that is for others to judge, templates of charts too."""
_SYNTAX: Final = "E01"
_VALUE: Final = re.compile(r"\s+#.*|,\s*\Z")
"""What follows a value in its line."""
_TWICE: Final = "E0107"
_OWN_LIMITS: Final = ("E0101", "E0110")
"""tunec's own limits against large data and bombs: another reader may accept them."""
_SURROGATE: Final = "surrogate"
"""Half a surrogate pair as an escape, which `json` accepts silently."""
_WITHOUT_TWINS: Final = ("llamafactory", "glm4")
"""Whose reader refuses a key that is given twice: omegaconf 2.3.0 _utils.py `get_yaml_loader`, and
ruamel.yaml 0.18 constructor.py `DuplicateKeyError`. So does deepspeed 0.14.5 to 0.19.8 where it
reads a file itself (runtime/config_utils.py `dict_raise_error_on_duplicate_keys`). PyYAML and
`json` keep the last."""
_FILLING: Final = frozenset({*TRAINERS, "accelerate", "axolotl", "simpletuner", "glm4"})
"""Targets whose trainer reads ds_config.json by `json.load` and passes it on."""
_NOTE: Final = "deepspeed.initialize reads it by hjson; transformers and accelerate refuse it"


def as_warnings(
    faults: Iterable[Diagnostic],
    documents: Iterable[Document],
    sources: Mapping[str, str],
    targets: Mapping[str, Target],
) -> Iterator[Diagnostic]:
    """Warn only of what is wrong with the text of a file that is no config of a known program.

    Workflows, editors' settings and templates of charts have syntax of their own (comments in JSON,
    tags, `{{ }}`), which is for their own readers to judge.
    """
    known = {each.name for each in documents if each.kind not in _OF_CLUSTERS}
    strange: dict[str, bool] = {}
    for fault in faults:
        name = fault.file
        if name not in known and name in sources and name not in strange:
            strange[name] = _is_strange(sources[name], targets)
        if strange.get(name) and fault.severity != "note":
            yield replace(fault, severity="warning", notes=(*fault.notes, _STRANGE))
        elif name not in known and fault.id == _TWICE:
            yield replace(fault, severity="note", notes=(*fault.notes, _OF_OTHERS))
        elif _is_to_fill_in(fault, sources.get(name, "")):
            yield replace(fault, severity="note", notes=(*fault.notes, _LEFT_OPEN))
        elif name not in known and _KEY.search(sources.get(name, "a:"), 0, _LONGEST) is None:
            yield replace(fault, notes=(*fault.notes, _KEYLESS))
        else:
            yield fault


_OPEN: Final = re.compile(r"[:=]\s*(?:\.\.\.|<[^<>]*>|\{\{.*\}\})\s*,?\s*(?:#.*)?$")
_LEFT_OPEN: Final = "the value is a place to fill in: the file is none until it is"


def _is_to_fill_in(fault: Diagnostic, text: str) -> bool:
    """Whether the line of a fault holds a placeholder for the user."""
    lines = lines_of(text)
    line = 0 if fault.span is None else fault.span.line
    is_there = fault.id.startswith(_SYNTAX) and 0 < line <= len(lines)
    return is_there and _OPEN.search(lines[line - 1].rstrip()) is not None


def is_of_nobody(fault: Diagnostic) -> bool:
    """Whether a fault is of a file of which `as_warnings` only warns."""
    return _STRANGE in fault.notes


def is_of_nothing(fault: Diagnostic) -> bool:
    """Whether a fault is of a file in which no line has the form of a key: it is empty, or data."""
    return _KEYLESS in fault.notes


def _is_strange(text: str, targets: Mapping[str, Target]) -> bool:
    """Whether few of the words before a colon are keys of a known program."""
    keys = set(_KEY.findall(text, 0, _LONGEST))
    if not keys:
        return len(text) > _LONG
    every = (known_keys(target, file) for target in targets.values() for file in target.files)
    mine = {key for key in keys & frozenset().union(*every) if "_" in key}
    return len(mine) < _SHARE * len(keys) or len(mine) < min(2, len(keys) - 1)


def as_read(
    faults: Iterable[Diagnostic],
    documents: Iterable[Document],
    readers: Sequence[str],
    sources: Mapping[str, str],
) -> Iterator[Diagnostic]:
    """The faults that each file's reader does not accept, with the consequence.

    A key that is given twice with the same value is harmless if the last one counts.
    """
    every = [each for each in documents if not each.is_view]
    kinds = {each.name: each.kind for each in every}
    is_plain = "deepspeed" in readers or not {*kinds.values()} & _FILLING
    for fault in _not_taken(faults, every, readers):
        if not fault.id.startswith(_SYNTAX):
            yield fault
            continue
        consequence = _consequence(fault, kinds.get(fault.file), is_plain=is_plain)
        notes = (f"what happens: {CONSEQUENCES[consequence]}", *fault.notes)
        told = replace(fault, consequence=consequence, notes=notes)
        is_idle = consequence == "silent" and _says_the_same(fault, sources.get(fault.file, ""))
        yield replace(told, severity="note") if is_idle else told


def _says_the_same(fault: Diagnostic, text: str) -> bool:
    """Whether the lines of a key that is given twice hold the same value."""
    lines = lines_of(text)
    at = {each.span.line for each in fault.labels if each.span is not None}
    if fault.id != _TWICE or len(at) < len(fault.labels) or max(at) > len(lines):
        return False
    said = {_VALUE.sub("", lines[each - 1]).strip() for each in at}
    return len(said) == 1 and not next(iter(said)).endswith((":", "{", "["))


def _consequence(fault: Diagnostic, kind: str | None, *, is_plain: bool) -> Consequence:
    if fault.id in _OWN_LIMITS or is_of_nobody(fault):
        return "unclear"
    if fault.id == _TWICE:
        is_refused = is_plain if kind == "deepspeed" else kind in _WITHOUT_TWINS
        return "parse" if is_refused else "silent"
    return "silent" if _SURROGATE in fault.message else "parse"


def _not_taken(
    faults: Iterable[Diagnostic], every: Sequence[Document], readers: Sequence[str]
) -> Iterator[Diagnostic]:
    """Without the faults that the reader of a DeepSpeed file accepts; a warning if it is unknown.

    deepspeed 0.14.5 to 0.19.8 runtime/config.py `DeepSpeedConfig.__init__` reads by hjson, which
    has comments and a comma too many; transformers and accelerate (utils/deepspeed.py
    `HfDeepSpeedConfig.__init__`) read the same file by `json.load`.
    """
    files = {each.name: each for each in every if each.kind == "deepspeed"}
    is_strict = any(each.kind in ("accelerate", "simpletuner") for each in every)
    for fault in faults:
        at = files.get(fault.file)
        if (
            at is None
            or fault.message not in _LENIENT
            or is_strict
            or (at.target is not None and at.target.name in _STRICT)
        ):
            yield fault
        elif "deepspeed" not in readers:
            yield replace(fault, severity="warning", notes=(*fault.notes, _NOTE))


_NO_COMMA: Final = "a comma or"
"""The fault at a pair that follows another: to hjson the end of a line is a comma."""
_BARE: Final = re.compile(r"""\s*["']?[\w.-]+["']?\s*:\s*[^\s"'{}\[\],:]""")
"""A key and a value without quotes, which ends with its line for hjson."""


def is_hjson(fault: Diagnostic, line: str) -> bool:
    """Whether hjson takes what JSON refuses at a line: text without quotes, comments, commas."""
    column = 0 if fault.span is None else fault.span.column - 1
    is_at_start = fault.message.startswith(_NO_COMMA) and not line[:column].strip()
    return is_at_start or fault.message in _LENIENT or _BARE.match(line) is not None
