"""rendering: a file's header, and its values as text in JSON, in YAML, or in its own format."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import yaml

from tunec.compiler.frontend.load import Loaded
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.recollection import PlanRenderer
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Artifact, File, Json
from tunec.compiler.version import __version__
from tunec.schemas.caches import table


def artifact(file: File, values: dict[str, Json], header: Sequence[str]) -> Artifact:
    """A file with its values and their text."""
    if file.render is not None:
        text = file.render(values, header)
    elif file.format == "json":
        text = render_json(values)
    else:
        text = render_yaml(values, header)
    return Artifact(file.name, file.format, text, values)


def render_json(values: Json) -> str:
    """JSON in the order of the rows; ValueError for NaN and infinity."""
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render_yaml(values: Json, header: Sequence[str] = ()) -> str:
    """YAML that YAML 1.1 readers type correctly: `1.0e-05` is a number, `'no'` is text."""
    comment = "".join(f"# {line}\n" for line in header)
    if not isinstance(values, dict) or not values:
        return comment + _written_out(values)
    return comment + "".join(_entry(key, value) for key, value in values.items())


def _entry(key: str, value: Json) -> str:
    """A key of a document with its value, rendered once for equal values."""
    said = key, repr(value)
    if said not in _ENTRIES:
        if len(_ENTRIES) >= _MOST_ENTRIES:
            _ENTRIES.clear()
        _ENTRIES[said] = _written_out({key: value})
    return _ENTRIES[said]


_MOST_ENTRIES: Final = 4096
_ENTRIES: Final[dict[tuple[str, str], str]] = table("compiler.rendering.entries", lasting=True)
"""Files differ in few of their entries, and rendering one takes a hundred times as long."""


def _written_out(values: Json) -> str:
    return _by_libyaml(values) or _dump(values, _Dumper)


def _by_libyaml(values: Json) -> str | None:
    """The text by the C library, ten times as fast, if it equals Python's.

    The two only differ in what they escape; a test checks that.
    """
    text = _dump(values, _LibDumper) if _LibDumper is not None else "\\"
    return None if "\\" in text else text


def _dump(values: Json, dumper: Any) -> str:
    text: str = yaml.dump(
        values, Dumper=dumper, sort_keys=False, allow_unicode=True, width=2**31 - 1
    )
    return text


class _InFull:
    """Writes repeated lists in full, where the stock dumpers would write `*id001`."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


class _Dumper(_InFull, yaml.SafeDumper):
    """The dumper in pure Python."""


_LibDumper: Final = (
    type("_LibDumper", (_InFull, yaml.CSafeDumper), {}) if yaml.__with_libyaml__ else None
)


def _as_text(dumper: Any, text: str) -> yaml.ScalarNode:
    """A text of several lines as a block, such as a shell script; another one as usual."""
    style = "|" if _reads_as_block(text) else None
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


def _reads_as_block(text: str) -> bool:
    """Whether a text has several lines, all of them printable, and no empty one at its end.

    After a block with empty lines at its end PyYAML ends the document.
    """
    *lines, last = text.split("\n")
    if not lines or not (last or lines[-1]):
        return False
    return all(each.isprintable() for each in (*lines, last))


_Dumper.add_representer(str, _as_text)
if _LibDumper is not None:
    yaml.add_representer(str, _as_text, _LibDumper)


def header_of(loaded: Loaded, plan: Plan) -> tuple[str, ...]:
    """The comment lines of a file whose format allows comments."""
    read = "".join(f"{name}:{digest}" for name, digest in loaded.files)
    texts = _DECIDED.texts(plan)
    decided = ", ".join(texts[group] for group in _SORTED)
    return (f"tunec {__version__}; spec {_digest(read)}, plan {_digest(f'[{decided}]')}",)


def _decided(values: Mapping[str, object]) -> str:
    """Slots and values as text, as a list of pairs."""
    return ", ".join(f"({path!r}, {repr(value)!r})" for path, value in sorted(values.items()))


_DECIDED: Final = PlanRenderer("compiler.header.decided", _decided)
_SORTED: Final = tuple(dict.fromkeys(SLOTS[path].group for path in sorted(SLOTS)))
"""The groups, ordered by their slots' paths, which begin with the group's name."""


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
