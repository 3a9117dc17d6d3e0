"""A flag of SimpleTuner's that is misspelt, or whose number is none."""

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from functools import cache
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.diffusion.asked import configs
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_RELEASES: Final = ("3.1.6", "4.10.1")
_NUMBERS: Final = {"#/$defs/integer": "a whole number", "#/$defs/number": "a number"}
_NUMBER: Final = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_LIKE: Final = 0.88
_OLD: Final = frozenset(
    {
        *("vae_cache_preprocess", "save_total_limit", "aspect_ratio_bucketing", "repeats"),
        *("aspect_ratio_bucket_min", "aspect_ratio_bucket_max", "ez_model_type"),
        *("validation_steps", "checkpointing_steps", "ignore_final_epochs"),
    }
)
"""simpletuner 4.10.1 helpers/configuration/cli_utils.py `_LEGACY_ARG_HANDLERS`, cmd_args.py."""


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        if document.format not in ("json", "toml"):
            continue
        for path, place in document.found.items():
            name = path.lstrip("-")
            if "." in path or name in _OLD:
                continue
            if name in _flags():
                yield from _value(name, place)
            else:
                yield from _misspelt(name, place, frozenset(document.found))


def _value(name: str, place: Place) -> Iterator[Finding]:
    kinds = {each.get("$ref") for each in _flags()[name]}
    wanted = _NUMBERS.get(str(next(iter(kinds)))) if len(kinds) == 1 else None
    text = place.value
    if wanted == "a whole number" and isinstance(text, float):
        yield Finding(
            f"{place.path} is {text}, and no whole number",
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


def _misspelt(name: str, place: Place, written: frozenset[str]) -> Iterator[Finding]:
    if any(each.startswith(name) for each in _flags()):
        return  # argparse takes the beginning of a flag for the flag
    near = nearest(name, frozenset(_flags()) - {each.lstrip("-") for each in written})[:1]
    if not near or SequenceMatcher(None, name, near[0]).ratio() < _LIKE:
        return
    dashes = place.path[: len(place.path) - len(name)]
    yield Finding(
        f"SimpleTuner has no flag `{name}`",
        (place.key_label("refused"),),
        ("every key becomes a flag: unrecognized arguments",),
        f"did you mean `{near[0]}`?",
        Fix((place.renamed(dashes + near[0]),), "unsafe"),
    )


@cache
def _flags() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    """Every flag of a known release, with its schema in each that has it."""
    every = [schema(f"simpletuner/{each}.json")["properties"] for each in _RELEASES]
    return {
        name: tuple(each[name] for each in every if name in each) for one in every for name in one
    }


RULE = Rule(
    name="flag-not-known",
    severity="error",
    consequence="parse",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py `parse_cmdline_args`: "
            "parser.parse_args; cli_utils.py `mapping_to_cli_args`: each key is made a flag"
        ),
        "bghira/SimpleTuner#988, #2580",
    ),
    check=_check,
)
