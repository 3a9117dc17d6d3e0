"""TOML whose keys are flags and are not validated, and commands that name it.

sd-scripts reads its configs so, and musubi-tuner, which derives from it.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from msgspec import Struct, field

from tunec.compiler.consumers.schemas import parser_releases, parser_schema
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, nearest, nearly
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding
from tunec.schemas.caches import cached

_LIKE: Final = 0.88
_LAUNCHERS: Final = ("accelerate", "python", "torchrun", "deepspeed")
_KINDS: Final = {"integer": "a whole number", "number": "a number", "string": "a text"}
_PERCENT: Final = ("lr_warmup_steps", "lr_decay_steps")
Flags = Mapping[str, Mapping[str, Any]]


class FlagConfigs(Struct, frozen=True):
    """A program's configs, by the name of its package, which is also their kind."""

    package: str
    split: tuple[str, ...] = ()
    """Flags whose text is split at commas before it is checked."""
    harmless: tuple[str, ...] = ()
    """Flags for which any other value is harmless in a config."""
    anyhow: Mapping[str, str] = field(default_factory=dict)
    """Keys that no parser has, with the value that is what the program does in any case."""

    def unread(self, run: LintContext) -> Iterator[Finding]:
        """A key that no parser has: ignored in a config, refused as a flag."""
        for document in run.of(self.package):
            started = programs(self.package, run, document)
            for path, place in document.found.items():
                if place.node.fields is not None or "." in path:
                    continue
                known = _taken(self.package, started)
                is_flag = document.format == "shell"
                is_begun = is_flag and any(each.startswith(path) for each in known)
                is_own = run.own.declares(path, as_flag=True) or run.own.quotes(path)
                # argparse takes a flag's beginning for it
                is_idle = path in self.anyhow and place.value == self.anyhow[path]
                if path not in known and not is_begun and not is_own and not is_idle:
                    yield _unread(self.package, path, place, started)

    def refused(self, run: LintContext) -> Iterator[Finding]:
        """A value whose type differs from the flag's; a config's values are not converted."""
        for document in run.of(self.package):
            for path, place in document.found.items():
                flag = _flags(self.package).get(path)
                if flag is None or document.hides(path):
                    continue
                if document.format == "shell":
                    yield from _given(path, place, flag)
                else:
                    yield from self._written(path, place, flag)

    def _written(self, path: str, place: Place, flag: Mapping[str, Any]) -> Iterator[Finding]:
        """The finding for a config's value, which keeps its TOML type."""
        kind, value, words = flag["type"], place.value, flag.get("enum")
        if path in self.split:
            if not isinstance(value, str):
                text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
                yield _finding(
                    place,
                    f"{path} is no text",
                    "it is split at commas: AttributeError for a number or a list",
                    f'write "{text}"',
                    Fix((place.replaced(text),), "safe"),
                )
        elif kind == "array" and flag["items"]["type"] == "string" and isinstance(value, str):
            yield _finding(
                place,
                f"{path} is a text, and has to be a list of texts",
                "a text is read letter by letter: ValueError, not enough values to unpack",
                f"write {[value]}".replace("'", '"'),
                Fix((place.replaced([value]),), "unsafe"),
            )
        elif kind in ("integer", "number") and isinstance(value, str | bool):
            what = "a text" if isinstance(value, str) else "true or false"
            yield _finding(
                place,
                f"{path} is {what}, and no number",
                "a config's values are not converted, as those of a command are",
                "write the number, without quotes",
            )
        elif kind == "boolean" and isinstance(value, str):
            yield _finding(
                place,
                f"{path} is a text, which is on whatever it says",
                "a text that is not empty is true",
                "write true or false, without quotes",
                severity="warning" if value.lower() == "true" else "error",
            )
        elif (
            words
            and isinstance(value, str)
            and value
            and value not in words
            and path not in self.harmless
        ):
            yield _choice(path, place, words)


def programs(package: str, run: LintContext, document: Document) -> tuple[str, ...]:
    """The scripts that are started with a config, as far as known; none: it may be any script."""
    started = (
        PurePath(at.first_word).stem
        for each in launches(run, *_LAUNCHERS)
        if (each.name == document.name or document.format != "shell")
        and (at := each.get("script")) is not None
    )
    return tuple(dict.fromkeys(name for name in started if name in _lacking(package)))


@cached()
def _flags(package: str) -> Flags:
    """Every flag of any release, as the newest one with the flag defines it."""
    found: dict[str, Mapping[str, Any]] = {}
    for release in parser_releases(package):
        found |= parser_schema(package, release)["properties"]
    return found


@cached()
def _lacking(package: str) -> Mapping[str, frozenset[str]]:
    """The flags that each script has in no release."""
    lacking: dict[str, frozenset[str]] = {}
    for release in parser_releases(package):
        schema = parser_schema(package, release)
        absent = _flags(package).keys() - schema["properties"].keys()
        for name, lacks in schema["x-lacks"].items():
            here = frozenset((*lacks, *absent))
            lacking[name] = lacking.get(name, here) & here
    return lacking


def _taken(package: str, started: tuple[str, ...]) -> frozenset[str]:
    """The flags that some of these scripts have; without scripts, those of any."""
    lacks = [_lacking(package)[name] for name in started]
    return frozenset(
        each for each in _flags(package) if not lacks or any(each not in one for one in lacks)
    )


def _unread(package: str, path: str, place: Place, started: tuple[str, ...]) -> Finding:
    is_flag = place.document.format == "shell"
    is_elsewhere = path in _flags(package)
    near = [] if is_elsewhere else nearest(path, frozenset(_flags(package)))[:1]
    is_meant = bool(near) and nearly(path, frozenset(_flags(package)), _LIKE) is not None
    script = f"{joined([f'{each}.py' for each in started], 'or')}" if started else package
    what = "argparse ends the program: unrecognized arguments"
    silent = "read_config_from_file accepts any key, and nothing reads this one"
    others = sorted(name for name, lacks in _lacking(package).items() if path not in lacks)
    return Finding(
        f"{script} has no flag {path}",
        (place.key_label("refused" if is_flag else "not read"),),
        (
            what if is_flag else silent,
            *(
                (f"{joined([f'{each}.py' for each in others[:2]])} takes it",)
                if is_elsewhere
                else ()
            ),
        ),
        f"did you mean {near[0]}?" if is_meant else "remove it",
        Fix((place.renamed(near[0]),), "unsafe") if is_meant else None,
        consequence="parse" if is_flag else None,
        severity=None if is_flag or is_meant else "warning",
    )


def _given(path: str, place: Place, flag: Mapping[str, Any]) -> Iterator[Finding]:
    """Values in a command that argparse refuses."""
    kind, value = flag["type"], place.value
    words = flag.get("enum")
    if kind == "boolean" and place.node.written is not None:
        yield _finding(place, f"--{path} takes no value", "it is a switch", "write it alone")
    elif isinstance(value, list) and kind != "array":
        if all(value):
            words_of = f"{len(value)} words"
            yield _finding(
                place, f"--{path} is given {words_of}", "argparse takes one", "write one"
            )
    elif kind in ("integer", "number") and not _is_of(kind, value) and not _is_share(path, value):
        yield _finding(
            place, f"--{path} {value} is no number", f"argparse takes {_KINDS[kind]}", "write one"
        )
    elif words and value not in words:
        yield _choice(path, place, words)


def _is_share(path: str, value: Any) -> bool:
    return path in _PERCENT and isinstance(value, str) and is_number_text(value.removesuffix("%"))


def is_number_text(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_of(kind: str, value: Any) -> bool:
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return is_number(value)


def _choice(path: str, place: Place, words: list[Any]) -> Finding:
    told = joined([str(each) for each in words], "or")
    is_flag = place.document.format == "shell"
    return Finding(
        f"{path} {place.value} is none of its words",
        (place.label("refused" if is_flag else "not a word of the parser"),),
        (f"the parser takes {told}", *(() if is_flag else ("a config's values are not checked",))),
        f"write {told}",
        consequence="parse" if is_flag else "unclear",
        severity=None if is_flag else "warning",
    )


def _finding(
    place: Place, message: str, why: str, help: str, fix: Fix | None = None, severity: Any = None
) -> Finding:
    is_flag = place.document.format == "shell"
    return Finding(
        message,
        (place.label("refused"),),
        (why,),
        help,
        fix,
        consequence="parse" if is_flag else "silent" if severity else None,
        severity=severity,
    )
