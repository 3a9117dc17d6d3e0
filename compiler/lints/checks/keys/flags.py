"""The form of flags."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, Document, Place
from tunec.compiler.lints.facts.launch import starts_an_example
from tunec.compiler.lints.kinds import fields_of, own_keys
from tunec.compiler.lints.rule import Finding, rule
from tunec.compiler.lints.schemas import Schema, kinds_of, schemas
from tunec.schemas.source import lines_of

_DASHED: Final = re.compile(
    r"(-(?!-)|[-\u2010-\u2015\u2212]*[\u2010-\u2015\u2212]-*)([A-Za-z]\w{2,})"
)


@rule(
    "flag-with-another-dash",
    "error",
    "parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 hf_argparser.py `parse_args_into_dataclasses`: Some "
            "specified arguments are not used by the HfArgumentParser"
        ),
        "Python 3.11 argparse.py `ArgumentParser._get_option_tuples`",
    ),
    reads=("launch:script",),
)
def flag_with_another_dash(run: LintContext) -> Iterator[Finding]:
    """A flag of the trainer with one dash, or with a dash that no keyboard has."""
    trained = {each.name for each in run.of(*TRAINERS) if each.format == "shell"}
    for document in run.of("launch"):
        script = document.get("script")
        if script is None or document.name not in trained:
            continue
        for item in script.node.items or ():
            found = _DASHED.fullmatch(str(item.value))
            if found is not None and found[2] in fields_of("hf"):
                word = Place(document, "script", item)
                yield _finding(word, found[1], found[2])


def _finding(word: Place, dash: str, name: str) -> Finding:
    what = "one dash" if dash == "-" else "a dash that typesetting puts in"
    return Finding(
        f"{dash}{name} is no flag: it begins with {what}",
        (Label("not a flag", word.span, name, True),),
        ("argparse hands the word on, and the trainer's parser refuses what no argument takes",),
        f"write --{name}",
        Fix((word.replaced(f"--{name}"),), "safe") if dash == "-" else None,
    )


_OF_SCRIPTS: Final = frozenset({"deepspeed", "resume_from_checkpoint"})
"""Flags that scripts with arguments of their own take as switches: deepspeed 0.14.5 to 0.19.8
`add_config_arguments` has a `--deepspeed` without a word."""
_OF_CALLER: Final = ("$@", '"$@', "$*", '"$*', "${@", '"${@')
_SWITCHES: Final = frozenset({"debug"})
"""Words of the trainer's that most scripts mean otherwise."""


@rule(
    "flag-without-value",
    "error",
    "parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 hf_argparser.py "
            '`HfArgumentParser._parse_dataclass_field`: nargs="?" for truth values only'
        ),
        "Python 3.11 argparse.py `ArgumentParser._match_argument`: expected one argument",
    ),
    reads=("trainer:*",),
)
def flag_without_value(run: LintContext) -> Iterator[Finding]:
    """A flag of the trainer's arguments that asks for a value, and stands alone."""
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


def _is_switch(run: LintContext, document: Document, path: str) -> bool:
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
