"""The keys of tools that are told apart by release: their schemas, one a release."""

from collections.abc import Iterable
from functools import cache
from typing import Final

from packaging.version import InvalidVersion, Version

from tunec.compiler.consumers.schemas import known_releases
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.facts.keys.known import fields_of
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Consequence

TOOLS: Final = ("llamafactory", "axolotl", "accelerate")
"""Kinds of documents that have a JSON Schema of the whole file for each release."""
CLASSES: Final = TRL
"""Kinds whose keys are the fields of a class of TRL."""
_FILES: Final = {
    "llamafactory": ("0.9.1", "0.9.3", "0.9.5"),
    "axolotl": ("0.8.1", "0.13.2", "0.19.0"),
    "accelerate": (
        *("0.30.1", "0.31.0", "0.34.2", "1.0.1", "1.4.0", "1.6.0", "1.7.0", "1.8.1", "1.10.1"),
        *("1.12.0", "1.13.0", "1.14.0", "1.15.0"),
    ),
}


def releases_of(kind: str) -> tuple[str, ...]:
    """The releases whose keys are known, oldest first."""
    if kind in CLASSES:
        return tuple(sorted(known_releases(f"{kind}_config"), key=Version))
    return _FILES[kind]


@cache
def keys_at(kind: str, release: str) -> frozenset[str]:
    """The keys at the top of a file of that kind in a release."""
    if kind in CLASSES:
        return fields_of(f"{kind}_config", release)
    return frozenset(schema(f"{kind}/{release}.json")["properties"])


@cache
def keys_ever(kind: str) -> frozenset[str]:
    """The keys that any known release has."""
    return frozenset[str]().union(*(keys_at(kind, each) for each in releases_of(kind)))


def package_of(kind: str) -> str:
    """The distribution that reads a kind."""
    return "trl" if kind in CLASSES else kind


def around(run: LintContext, kind: str) -> tuple[str, ...]:
    """The known release that runs, or those before and after it; none: not known.

    Those of its own minor are enough where there are any.
    """
    try:
        asked = run.release(package_of(kind)).version
    except (LookupError, InvalidVersion):
        return ()
    known = releases_of(kind)
    same = [each for each in known if Version(each).release[:2] == asked.release[:2]]
    among = same or known
    if exact := [each for each in among if Version(each) == asked]:
        return (exact[-1],)
    older = [each for each in among if Version(each) < asked]
    newer = [each for each in among if Version(each) > asked]
    return (*older[-1:], *newer[:1])


def having(kind: str, key: str, among: Iterable[str]) -> tuple[str, ...]:
    """Those of some releases that have a key."""
    return tuple(each for each in among if key in keys_at(kind, each))


_STRICT: Final = "trl>=0.19"
"""huggingface/trl v0.18.2 scripts/utils.py `TrlParser.parse_args_and_config` drops the keys of its
file that no class has; v0.19.0 raises ValueError: Unknown arguments from config file."""


def of_unknown(run: LintContext, document: Document) -> Consequence:
    """What becomes of a key that the reader of a file or of flags does not know."""
    if document.kind == "axolotl":
        return "silent"
    is_file = document.kind in CLASSES and document.format != "shell"
    return "silent" if is_file and run.runs(_STRICT) is False else "parse"


@cache
def script_keys() -> frozenset[str]:
    """The keys of TRL's scripts that are of no trainer: of ScriptArguments and ModelConfig."""
    files = schema("trl/index.json")["sft"].items()
    return frozenset[str]().union(
        *(
            frozenset(schema(f"trl/{name}")["properties"]) - keys_at("sft", release)
            for release, name in files
            if release in releases_of("sft")
        )
    )
