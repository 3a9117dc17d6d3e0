"""Names that SimpleTuner does not read as flags."""

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.diffusion import (
    MORE,
    VARIABLES,
    configs,
    extra,
    is_env_file,
    said,
    variables_of,
)
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.caches import cached

_RELEASES: Final = ("3.1.6", "4.10.1")
_NUMBERS: Final = {"#/$defs/integer": "a whole number", "#/$defs/number": "a number"}
_TEXT: Final = "#/$defs/text"
_SWITCHES: Final = {"true": True, "false": False}
_BOOLEAN: Final = "#/$defs/boolean"
_WORDS: Final = frozenset({"1", "true", "yes", "y", "on", "0", "false", "no", "n", "off", "none"})
"""simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py `_parse_bool_flag`."""
_NUMBER: Final = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_WHOLE: Final = re.compile(r"\s*[-+]?\d+\s*")
_LIKE: Final = 0.88
_KNOWN: Final = "simpletuner>=3.1"
_ELSEWHERE: Final = "no release from 3.1.6 on has it; an earlier one, or another program, may"
_SINCE: Final = {
    "use_prodigy_optimizer": "write optimizer: prodigy",
    "use_8bit_adam": "write optimizer: bnb-adamw8bit",
    "adam_bfloat16": "write optimizer: adamw_bf16",
    "use_adafactor_optimizer": "write optimizer: torch-adafactor",
    **{name: f"write model_family: {name}" for name in ("flux", "sd3", "kolors")},
}
"""The replacements of flags in bghira/SimpleTuner v0.9.8 helpers/arguments.py."""
_OLD: Final = frozenset(
    {
        *("vae_cache_preprocess", "save_total_limit", "aspect_ratio_bucketing", "repeats"),
        *("aspect_ratio_bucket_min", "aspect_ratio_bucket_max", "ez_model_type"),
        *("validation_steps", "checkpointing_steps", "ignore_final_epochs"),
    }
)
"""simpletuner 4.10.1 helpers/configuration/cli_utils.py `_LEGACY_ARG_HANDLERS`, cmd_args.py."""


@rule("error", "parse", consumers=("simpletuner",), reads=("simpletuner:*",))
def flag_not_known(run: LintContext) -> Iterator[Finding]:
    """A flag of SimpleTuner that is misspelt, or whose value is no number."""
    for document in configs(run):
        is_data = document.format in ("json", "toml")
        found = document.found if is_data else extra(document)
        for path, place in found.items():
            name = path.lstrip("-")
            if "." in path or name in _OLD or (place.node.fields and name not in flags()):
                continue
            if name in flags():
                yield from _value(name, place)
            else:
                yield from _unknown(run, name, place, frozenset(found))


def _value(name: str, place: Place) -> Iterator[Finding]:
    yield from _switch(name, place)
    yield from _number(name, place)
    yield from _word(name, place)


def _word(name: str, place: Place) -> Iterator[Finding]:
    """A switch whose value is neither on nor off."""
    text = str(place.value).strip().lower()
    is_plain = isinstance(place.value, str) and bool(text) and not set("${") & set(text)
    if (
        not is_plain
        or text in _WORDS
        or any(each.get("$ref") != _BOOLEAN for each in flags()[name])
    ):
        return
    yield Finding(
        f"{place.path} is {place.value!r}, and neither on nor off",
        (place.label("refused"),),
        ("Expected a boolean value",),
        "write true or false",
    )


def _switch(name: str, place: Place) -> Iterator[Finding]:
    """True becomes the bare flag, and false its value: only a switch accepts either."""
    meant = _SWITCHES.get(str(place.value).strip().lower())
    if meant is None or any(_takes(each, meant=meant) for each in flags()[name]):
        return
    if not meant and isinstance(place.value, str):
        return  # that text is dropped, as if nobody had written the flag
    yield Finding(
        f"{place.path} is no switch, and cannot be {str(meant).lower()}",
        (place.label("refused"),),
        ("true becomes the flag alone: expected one argument",)
        if meant
        else ("false becomes the flag's value: invalid value, invalid choice",),
        "write its value, or remove it",
    )


def _takes(kind: Mapping[str, Any], *, meant: bool) -> bool:
    if "enum" in kind:
        return meant in kind["enum"] or str(meant).lower() in kind["enum"]
    valued = (*_NUMBERS, *([_TEXT] if meant else []))
    return kind.get("$ref") not in valued


def _number(name: str, place: Place) -> Iterator[Finding]:
    kinds = {each.get("$ref") for each in flags()[name]}
    wanted = _NUMBERS.get(str(next(iter(kinds)))) if len(kinds) == 1 else None
    text = _typed(place.value)
    if str(place.value).strip().lower() in _SWITCHES:
        return
    if wanted == "a whole number" and isinstance(text, float):
        yield Finding(
            f"{place.path} is {text}, not a whole number",
            (place.label("refused"),),
            ("the value becomes the text of a flag, and int() takes no point and no exponent",),
            "write a whole number" if text >= 1 else "remove it",
        )
    if wanted is None or not isinstance(text, str) or _NUMBER.fullmatch(text) or not text.strip():
        return
    if text.strip().lower() in ("none", "inf", "nan") or "{" in text or "$" in text:
        return
    yield Finding(
        f"{place.path} is {text!r}, and no number",
        (place.label("refused"),),
        (f"the flag takes {wanted}: invalid value",),
        "write the number alone",
    )


def _typed(value: Any) -> Any:
    """The text of a number with a point or an exponent as that number."""
    is_part = isinstance(value, str) and _NUMBER.fullmatch(value) and not _WHOLE.fullmatch(value)
    return float(value) if is_part else value


def _unknown(
    run: LintContext, name: str, place: Place, written: frozenset[str]
) -> Iterator[Finding]:
    if _is_short_for_one(name):
        return  # argparse takes the beginning of a flag for the flag
    near = nearest(name, frozenset(flags()) - {each.lstrip("-") for each in written})[:1]
    is_near = bool(near) and SequenceMatcher(None, name, near[0]).ratio() >= _LIKE
    dashes = place.path[: len(place.path) - len(name)] if name in place.path else ""
    fix = Fix((place.renamed(dashes + near[0]),), "unsafe") if is_near and dashes else None
    gone = _SINCE.get(name)
    yield Finding(
        f"SimpleTuner has no flag `{name}`",
        (place.key_label("refused"),),
        (
            "every key becomes a flag: unrecognized arguments",
            *(() if is_near or run.runs(_KNOWN) else (_ELSEWHERE,)),
        ),
        gone or (f"did you mean `{near[0]}`?" if is_near else "remove it"),
        fix,
        severity=None if is_near or run.runs(_KNOWN) else "warning",
    )


def _is_short_for_one(name: str) -> bool:
    """Whether in some release exactly one flag begins with the name, as argparse requires."""
    every = [schema(f"simpletuner/{each}.json")["properties"] for each in _RELEASES]
    return any(sum(flag.startswith(name) for flag in each) == 1 for each in every)


@cached()
def flags() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    """Every flag of a known release, with its schema in each release that has it."""
    every = [schema(f"simpletuner/{each}.json")["properties"] for each in _RELEASES]
    return {
        name: tuple(each[name] for each in every if name in each) for one in every for name in one
    }


@rule("error", "silent", consumers=("simpletuner",), reads=("simpletuner:*",))
def false_is_dropped(run: LintContext) -> Iterator[Finding]:
    """A switch of SimpleTuner is turned off in a way that its loader ignores."""
    for document in configs(run):
        for flag in _on_by_themselves():
            at = said(document, flag)
            if at is not None and _is_dropped(document, at):
                yield _false_finding(document, flag, at)


@cached()
def _on_by_themselves() -> tuple[str, ...]:
    """Switches that are on by default in every known release."""
    every = [schema(f"simpletuner/{each}.json")["properties"] for each in _RELEASES]
    return tuple(
        name
        for name, each in every[0].items()
        if isinstance(each, dict)
        and each.get("default") is True
        and all(isinstance(other.get(name), dict) for other in every)
    )


def _is_dropped(document: Document, at: Place) -> bool:
    """Whether the loader drops the value: a false that is no boolean of JSON or TOML."""
    if document.format == "shell" and at.path == "TRAINER_EXTRA_ARGS":
        return False
    is_word = isinstance(at.value, str) or document.format == "shell"
    return is_word and str(at.value).strip().lower() == "false"


def _false_finding(document: Document, flag: str, at: Place) -> Finding:
    is_env = document.format == "shell"
    why = "a variable" if is_env else "a text"
    help_ = f'write TRAINER_EXTRA_ARGS="--{flag}=false"' if is_env else "write false without quotes"
    return Finding(
        f"{at.path} stays true",
        (at.label("left out"),),
        (f"{why} that is false becomes no flag, and {flag} is true by default",),
        help_,
        None if is_env else Fix((at.replaced(False),), "unsafe"),
    )


_FAMILIES: Final = {
    "FLUX": "flux",
    "STABLE_DIFFUSION_3": "sd3",
    "PIXART_SIGMA": "pixart",
    "KOLORS": "kolors",
    "SMOLDIT": "",
    "STABLE_DIFFUSION_LEGACY": "sd1x",
}
"""bghira/SimpleTuner v1.0 config/config.env.example: a switch for each family."""
_FORMER: Final = {"MIN_SNR_GAMMA": "snr_gamma", "SNR_GAMMA": "snr_gamma"}


@rule("note", "silent", consumers=("simpletuner",), reads=("simpletuner:*",))
def variable_of_no_flag(run: LintContext) -> Iterator[Finding]:
    """A variable of SimpleTuner's config.env that becomes no flag."""
    for document in configs(run):
        if is_env_file(document) and not _is_of_old(document):
            for name, at in document.found.items():
                if name != MORE and name not in VARIABLES:
                    yield from _of(document, name, at)


def _is_of_old(document: Document) -> bool:
    """Whether it is written for the script of SimpleTuner 1.0, which reads other variables.

    `required-flag-missing` reports that once.
    """
    return document.get("MODEL_FAMILY") is None and not _FAMILIES.keys().isdisjoint(document.found)


def _of(document: Document, name: str, at: Place) -> Iterator[Finding]:
    says = str(at.value).strip().lower()
    if name in _FAMILIES:
        if says == "true":
            family = _FAMILIES[name] or "the family's name"
            yield _variable_finding(at, name, "write MODEL_FAMILY=" + family)
        return
    flag = _FORMER.get(name, name.lower())
    if flag not in flags() or says in ("", "false", "none") or flag in extra(document):
        return
    other = next(iter(variables_of(flag)), None)
    if other is not None and document.get(other) is not None:
        return
    wanted = f"write {other}={at.value}" if other else f'write {MORE}="--{flag}={at.value}"'
    yield _variable_finding(at, name, wanted)


def _variable_finding(at: Place, name: str, wanted: str) -> Finding:
    return Finding(
        f"{name} becomes no flag of SimpleTuner",
        (at.key_label("not read"),),
        ("only the variables that it lists become flags: others become environment variables",),
        wanted,
    )


@rule("error", "parse", consumers=("simpletuner",), reads=("simpletuner:*",))
def section_passed_over(run: LintContext) -> Iterator[Finding]:
    """A section of SimpleTuner's configuration, whose keys become no flags."""
    for document in configs(run):
        for name, at in document.found.items():
            keys = list(at.node.fields or ())
            if "." in name or not keys or name.lstrip("-") in _flags():
                continue
            mine = [key for key in keys if key.lstrip("-") in _flags()]
            if mine:
                yield Finding(
                    f"the keys of {name} are not read: {', '.join(mine[:3])}",
                    (at.key_label("a section"),),
                    ("every key at the top becomes a flag, and a mapping becomes none",),
                    "write its keys at the top of the file",
                )


@cached()
def _flags() -> frozenset[str]:
    every = (schema(f"simpletuner/{each}.json")["properties"] for each in _RELEASES)
    return frozenset(name for each in every for name in each)
