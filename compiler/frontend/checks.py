"""Faults of a spec that its types do not show: exclusive fields, allowances, odd characters."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import quoted, shortened
from tunec.compiler.frontend.faults import beside, error
from tunec.compiler.frontend.fields import fields_at
from tunec.compiler.frontend.nodes import Node, descend, place, walk
from tunec.compiler.frontend.type_faults import head
from tunec.compiler.frontend.validation import typed
from tunec.schemas.data_paths import Chosen, data_kind
from tunec.schemas.source import Path, Span, dotted
from tunec.schemas.spec import EXCLUSIVE, Spec

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, line breaks, and characters that change the direction of text."""
_FREE_KEYS: Final = frozenset({"extra", "software"})
"""Fields whose keys are texts of the user and are used like values."""

_TRAIN: Final = ("data", "train")
_EVALUATION: Final = ("data", "evaluation")
_NEEDED: Final = frozenset({("method",), ("train", "warmup")})
"""Mappings in which one of several exclusive fields is required."""


_EVERY_SPEC: Final = ("tunec", "model", "method", "data", "hardware")
_FEW: Final = 2
"""A spec may hold this many fields of other programs by mistake and still count as a spec."""


def check_kind(data: Any, tree: Node) -> Iterator[Diagnostic]:
    """Report a document that is no spec at all: not a mapping, or a trainer's config."""
    if not isinstance(data, dict):
        yield from typed(Spec, data, tree).faults
        return
    if not data.keys().isdisjoint(_EVERY_SPEC):
        return
    if len(data.keys() - fields_at(Spec, ())) <= _FEW:
        return
    name = shortened(place(tree).file)
    yield error(
        "E0318",
        f"`{name}` is no spec: it has no field that every spec has",
        head(tree),
        label="not a field of a spec",
        notes=(f"every spec has {quoted(_EVERY_SPEC, 'and')}",),
        help=f"`tunec init --from {name}` makes a spec of a trainer's config, and `tunec lint "
        f"{name}` says what is wrong with it",
    )


def check_exclusive(data: Any, tree: Node) -> Iterator[Diagnostic]:
    """Find mappings that give several fields, or none, where one is meant."""
    for path, members in EXCLUSIVE.items():
        value = _look_up(data, path)
        if not isinstance(value, Mapping):
            continue
        given = [name for name in value if name in members and _counts(path, value[name])]
        given.sort(key=lambda name: _order(_key_span(tree, (*path, name))))
        if len(given) > 1:
            yield _too_many(path, given, tree)
        elif not given and path in _NEEDED and not set(value) - set(members):
            yield _none_given(path, members, tree)


def _counts(path: Path, value: Any) -> bool:
    """A method may be chosen without options (`lora:`); elsewhere an empty field does not count."""
    return value is not None or path == ("method",)


def _look_up(data: Any, path: Path) -> Any:
    for part in path:
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def _order(span: Span) -> tuple[str, int, int]:
    return span.file, span.line, span.column


def _too_many(path: Path, given: list[str], tree: Node) -> Diagnostic:
    spans = [(name, _key_span(tree, (*path, name))) for name in given]
    (first, span), *rest = spans
    return error(
        "E0308",
        f"`{dotted(path)}` gives {quoted(given, 'and')}, which exclude each other",
        span,
        label="given here",
        path=(*path, first),
        others=[beside("and here", each, (*path, name)) for name, each in rest],
        help="keep one of them",
    )


def _none_given(path: Path, members: tuple[str, ...], tree: Node) -> Diagnostic:
    return error(
        "E0308",
        f"`{dotted(path)}` gives none of {quoted(members, 'and')}",
        head(descend(tree, path)[0]),
        path=path,
        help="give one of them",
    )


def _key_span(tree: Node, path: Path) -> Span:
    node, _ = descend(tree, path)
    return node.key_span or place(node)


def check_parts(data: Mapping[str, Any], tree: Node) -> Iterator[Diagnostic]:
    """Find data that is listed twice, whose number of times is one, and parts of what has none."""
    listed = _look_up(data, _TRAIN)
    seen: dict[str, int] = {}
    for at, part in enumerate(listed if isinstance(listed, list) else ()):
        path = _data_name(part)
        if path is None:
            continue
        if path in seen:
            yield _listed_twice(path, seen[path], at, tree)
        seen.setdefault(path, at)
        yield from _parts_of_a_file(part, (*_TRAIN, at), tree)
    yield from _parts_of_a_file(listed, _TRAIN, tree)
    yield from _parts_of_a_file(_look_up(data, _EVALUATION), _EVALUATION, tree)


def _data_name(part: Any) -> str | None:
    """A data set with its selected part, if it is well formed."""
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else None
    path, *which = (part.get(key) for key in ("path", "config", "split"))
    if not isinstance(path, str) or not all(
        each is None or isinstance(each, str) for each in which
    ):
        return None
    return str(Chosen(path, *which))


def _parts_of_a_file(part: Any, at: Path, tree: Node) -> Iterator[Diagnostic]:
    path = part.get("path") if isinstance(part, Mapping) else None
    if not isinstance(path, str) or (data_kind(path) == "name" and not path.endswith(".py")):
        return
    kind = "file" if path.endswith(".py") else data_kind(path)
    for key in ("config", "split"):
        if part.get(key) is not None:
            yield error(
                "E0308",
                f"`{shortened(path)}` is a {kind}, which has no {key} of its own",
                place(descend(tree, (*at, key))[0]),
                label="of a data set on the Hub",
                path=(*at, key),
                help=f"name the file of that part, and remove `{key}`",
            )


def _listed_twice(path: str, first: int, again: int, tree: Node) -> Diagnostic:
    spans = [place(descend(tree, (*_TRAIN, at))[0]) for at in (first, again)]
    return error(
        "E0308",
        f"`data.train` lists `{shortened(path)}` twice",
        spans[1],
        label="listed again",
        path=(*_TRAIN, again),
        others=[beside("and here", spans[0], (*_TRAIN, first))],
        help=(
            f"list it once, and give the number of times an epoch sees it: `{{path: {path}, "
            "times: 2}`"
        ),
    )


def check_allow(value: Any, tree: Node) -> Iterator[Diagnostic]:
    """Check `allow`: each name has a reason, and none is the code of a hard error."""
    if not isinstance(value, Mapping):
        return
    for name, reason in value.items():
        node, _ = descend(tree, ("allow", name))
        if is_code(name):
            yield error(
                "E0311",
                f"`{name}` is the code of an error, which cannot be allowed",
                node.key_span or place(node),
                path=("allow", name),
                notes=("only warnings and notes can be allowed; they have names, not codes",),
                help="fix the error, and remove this line",
            )
        elif not isinstance(reason, str) or not reason.strip():
            yield without_reason(
                name, place(node), ("allow", name), f"{name}: why it is right here"
            )


def without_reason(name: str, span: Span, path: Path, form: str) -> Diagnostic:
    """The error of an allowance that gives no reason."""
    return error(
        "E0311",
        f"`{shortened(name)}` is allowed without a reason",
        span,
        path=path,
        notes=("whoever reads the spec later needs to know why the warning does not apply",),
        help=f"write `{form}`",
    )


def check_characters(tree: Node) -> Iterator[Diagnostic]:
    """Find line breaks and control characters in texts that become arguments and file names."""
    for path, node in walk(tree):
        found = None
        if isinstance(node.value, str) and not _is_prose(path):
            found = _CONTROL.search(node.value)
        if found is None and path[:1] and path[0] in _FREE_KEYS:
            found = _CONTROL.search(str(path[-1]))
        if found is not None:
            yield error(
                "E0306",
                f"`{shortened(dotted(path))}` holds {_named(found[0])}",
                place(node),
                path=path,
                notes=("the text goes into file names, flags and launch scripts",),
                help="write it as one line of printable characters",
            )


def _is_prose(path: Path) -> bool:
    """Whether a text is a reason, which only people read, so it may have several lines."""
    return path[:1] == ("allow",) or (path[:1] == ("pin",) and path[-1] == "reason")


_FILES: Final = frozenset(
    {
        *(("model",), ("model", "path"), ("model", "config"), ("hardware",), ("calibration",)),
        *(("data",), ("data", "train"), ("data", "train", "path"), ("data", "evaluation")),
        *(("data", "evaluation", "path"), ("data", "chat_template")),
        *(("data", "lengths"), ("train", "output"), ("run", "script")),
    }
)
"""Fields that name a file, a directory or a script; list indices are left out."""
FILE_SLOTS: Final = frozenset(
    {
        *("model.path", "data.train", "data.more", "data.references", "data.evaluation"),
        "data.chat_template",
        *("zero.nvme_path", "launch.script", "runtime.output"),
    }
)
"""Slots that name a file, a directory or a script."""


def check_dashes(tree: Node) -> Iterator[Diagnostic]:
    """Report file names that programs would take for an option."""
    for path, node in walk(tree):
        if isinstance(node.value, str) and is_like_an_option(node.value) and _names_a_file(path):
            yield error(
                "E0316",
                f"`{dotted(path)}` begins with a dash: `{shortened(node.value)}`",
                place(node),
                label="an option, and no name of a file",
                path=path,
                help="write the name of a file; one that is called so begins with `./`",
            )


def is_like_an_option(text: str) -> bool:
    """Whether a program would take a word for an option instead of a file name."""
    return text.lstrip().startswith("-")


def _names_a_file(path: Path) -> bool:
    keys = tuple(each for each in path if isinstance(each, str))
    is_pin = len(keys) > 1 and keys[0] == "pin" and keys[2:] in ((), ("value",), ("path",))
    return keys in _FILES or (is_pin and keys[1] in FILE_SLOTS)


def _named(character: str) -> str:
    if character in "\n\r\u2028\u2029":
        return "a line break"
    return "a tab" if character == "\t" else f"the control character U+{ord(character):04X}"
