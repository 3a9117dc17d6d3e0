"""Keys and values of sd-scripts' configs, whose reader checks neither, and of its commands."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

from tunec.compiler.consumers.schemas import parser_releases, parser_schema
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, nearest, nearly
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.launch import launches
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.caches import cached
from tunec.targets.sd_scripts.packages import PACKAGE

_LIKE: Final = 0.88
_LAUNCHERS: Final = ("accelerate", "python", "torchrun", "deepspeed")
_SPLIT: Final = ("resolution", "face_crop_aug_range")
"""Flags whose text is split at commas before it is looked at (`prepare_dataset_args`)."""
_KINDS: Final = {"integer": "a whole number", "number": "a number", "string": "a text"}
_OTHERS: Final = ("sample_sampler", "console_log_level")
"""Flags of which another word does no harm in a config."""
_PERCENT: Final = ("lr_warmup_steps", "lr_decay_steps")
Flags = Mapping[str, Mapping[str, Any]]


def programs(run: LintContext, document: Document) -> tuple[str, ...]:
    """The scripts that are started with a config, as far as any is seen; none: it may be any."""
    started = (
        PurePath(at.first_word).stem
        for each in launches(run, *_LAUNCHERS)
        if (each.name == document.name or document.format != "shell")
        and (at := each.get("script")) is not None
    )
    return tuple(dict.fromkeys(name for name in started if name in _lacking()))


@cached()
def _flags() -> Flags:
    """Every flag of any release, as the newest that has it takes it."""
    found: dict[str, Mapping[str, Any]] = {}
    for release in parser_releases(PACKAGE):
        found |= parser_schema(PACKAGE, release)["properties"]
    return found


@cached()
def _lacking() -> Mapping[str, frozenset[str]]:
    """By script, the flags that it has in no release."""
    lacking: dict[str, frozenset[str]] = {}
    for release in parser_releases(PACKAGE):
        schema = parser_schema(PACKAGE, release)
        absent = _flags().keys() - schema["properties"].keys()
        for name, lacks in schema["x-lacks"].items():
            here = frozenset((*lacks, *absent))
            lacking[name] = lacking.get(name, here) & here
    return lacking


def _taken(started: tuple[str, ...]) -> frozenset[str]:
    """The flags that some of these scripts have; of no script, those of any."""
    lacks = [_lacking()[name] for name in started]
    return frozenset(
        each for each in _flags() if not lacks or any(each not in one for one in lacks)
    )


@rule(
    "key-unread-by-sd-scripts",
    "error",
    "silent",
    consumers=("sd-scripts",),
    reads=("sd-scripts:*",),
)
def key_unread_by_sd_scripts(run: LintContext) -> Iterator[Finding]:
    """A key that no parser has: in a config it is passed over, and as a flag refused."""
    for document in run.of("sd-scripts"):
        started = programs(run, document)
        for path, place in document.found.items():
            if place.node.fields is not None or "." in path:
                continue
            known = _taken(started)
            is_begun = document.format == "shell" and any(each.startswith(path) for each in known)
            if path not in known and not is_begun:  # argparse takes a flag's beginning for it
                yield _unread(path, place, started)


def _unread(path: str, place: Place, started: tuple[str, ...]) -> Finding:
    is_flag = place.document.format == "shell"
    is_elsewhere = path in _flags()
    near = [] if is_elsewhere else nearest(path, frozenset(_flags()))[:1]
    is_meant = bool(near) and nearly(path, frozenset(_flags()), _LIKE) is not None
    script = f"{joined([f'{each}.py' for each in started], 'or')}" if started else "sd-scripts"
    what = "argparse ends the program: unrecognized arguments"
    silent = "read_config_from_file accepts any key, and nothing reads this one"
    others = sorted(name for name, lacks in _lacking().items() if path not in lacks)
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


@rule(
    "value-refused-by-sd-scripts",
    "error",
    "init",
    consumers=("sd-scripts",),
    reads=("sd-scripts:*",),
)
def value_refused_by_sd_scripts(run: LintContext) -> Iterator[Finding]:
    """A value of another type than the flag's, which nothing converts in a config."""
    for document in run.of("sd-scripts"):
        for path, place in document.found.items():
            flag = _flags().get(path)
            if flag is not None and not document.hides(path):
                check = _given if document.format == "shell" else _written
                yield from check(path, place, flag)


def _given(path: str, place: Place, flag: Mapping[str, Any]) -> Iterator[Finding]:
    """What argparse refuses of a command."""
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
    """Whether a text is a number's."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_of(kind: str, value: Any) -> bool:
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return is_number(value)


def _written(path: str, place: Place, flag: Mapping[str, Any]) -> Iterator[Finding]:
    """What a config's value comes to, which stays as TOML has it."""
    kind, value, words = flag["type"], place.value, flag.get("enum")
    if path in _SPLIT:
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
        yield _finding(
            place,
            f"{path} is {'a text' if isinstance(value, str) else 'true or false'}, and no number",
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
    elif words and isinstance(value, str) and value and value not in words and path not in _OTHERS:
        yield _choice(path, place, words)


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


@rule(
    "key-in-two-sections",
    "warning",
    "silent",
    consumers=("sd-scripts",),
    reads=("sd-scripts:*",),
)
def key_in_two_sections(run: LintContext) -> Iterator[Finding]:
    """A key that two sections of a config give different values: the later one holds."""
    for document in run.of("sd-scripts"):
        for path, place in document.found.items():
            last = document.get(path.rpartition(".")[2])
            if "." in path and last is not None and last.value != place.value:
                yield Finding(
                    f"{path.rpartition('.')[2]} is {last.value}, and not {place.value}",
                    (place.label("not read"), *also(last, "read")),
                    ("sections mean nothing, and of two keys with one name the later one holds",),
                    "remove one of the two",
                )
