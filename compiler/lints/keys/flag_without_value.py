"""A flag of the trainer's arguments that asks for a value, and stands alone."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.kinds import own_keys
from tunec.compiler.lints.launch.examples import starts_an_example
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import Schema, kinds_of, schemas
from tunec.schemas.source import lines_of

_OF_SCRIPTS: Final = frozenset({"deepspeed", "resume_from_checkpoint"})
"""Flags that scripts with arguments of their own take as switches: deepspeed 0.14.5 to 0.19.8
`add_config_arguments` has a `--deepspeed` without a word."""
_OF_CALLER: Final = ("$@", '"$@', "$*", '"$*', "${@", '"${@')
_SWITCHES: Final = frozenset({"debug"})
"""Words of the trainer's that most scripts mean otherwise."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of(*TRAINERS):
        if document.format != "shell" or document.is_view:
            continue
        known = [each.get("properties", {}) for each in schemas(run, document)]
        for path, place in document.found.items():
            is_bare = place.value is True and place.node.written is None
            asks = known and all(_asks(each.get(path)) for each in known)
            if (
                is_bare
                and asks
                and not _is_switch(run, document, path)
                and not _is_handed_on(place)
            ):
                yield Finding(
                    f"--{path} has no value",
                    (place.label("a value should follow"),),
                    ("argparse: expected one argument, or at least one",),
                    f"write a value behind --{path}, or leave it out",
                )


def _asks(field: Schema | None) -> bool:
    """Whether a field takes no truth value: a word has to follow its flag."""
    kinds = set() if field is None else set(kinds_of(field)) - {"null"}
    return bool(kinds) and "boolean" not in kinds


def _is_switch(run: Run, document: Document, path: str) -> bool:
    """Whether the script may take the flag for itself, and without a word."""
    if starts_an_example(run, document) and document.get("deepspeed_config") is None:
        return path in _SWITCHES
    own = own_keys(document.target, document.file, document.found)
    return path in _SWITCHES or (path in _OF_SCRIPTS and bool(own))


def _is_handed_on(place: Place) -> bool:
    """Whether what the script itself was given follows the flag: the value may be the first."""
    span, lines = place.span, lines_of(place.document.text)
    behind = lines[span.end_line - 1][span.end_column - 1 :] if span.end_line <= len(lines) else ""
    return behind.strip().startswith(_OF_CALLER)


RULE = Rule(
    name="flag-without-value",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 hf_argparser.py "
            '`HfArgumentParser._parse_dataclass_field`: nargs="?" for truth values only'
        ),
        "Python 3.11 argparse.py `ArgumentParser._match_argument`: expected one argument",
    ),
    check=_check,
)
