"""A key that is nearly one of the tool's."""

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.keys.known import fields_of
from tunec.compiler.lints.keys.tools import (
    CLASSES,
    TOOLS,
    around,
    keys_at,
    keys_ever,
    of_unknown,
    script_keys,
)
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LIKE: Final = 0.88
"""As in `known`: how alike two names are when one is taken for a misspelling of the other."""


def _check(run: Run) -> Iterator[Finding]:
    for kind in (*TOOLS, *CLASSES):
        here = around(run, kind)
        keys = frozenset[str]().union(*(keys_at(kind, each) for each in here))
        for document in run.of(kind):
            keys |= _of_script(document)
            for path, place in document.found.items():
                if "." in path or document.is_view or _is_known(kind, path):
                    continue
                near = _near(path, keys - frozenset(document.found)) or _near(path, keys)
                if near is not None:
                    yield _finding(run, place, near)


def _is_known(kind: str, path: str) -> bool:
    every = fields_of("training_arguments", "4.40.2") | fields_of("training_arguments", "5.23.0")
    if kind not in CLASSES:
        return path in keys_ever(kind)
    return path in keys_ever(kind) | every | script_keys()


def _of_script(document: Document) -> frozenset[str]:
    """The other keys of a recipe of TRL's scripts; the handbook's own had `dataset_configs`."""
    is_recipe = document.kind in CLASSES and document.format != "shell"
    is_own = document.get("dataset_mixer") is not None
    return script_keys() if is_recipe and not is_own else frozenset()


def _near(path: str, keys: frozenset[str]) -> str | None:
    for each in nearest(path, keys)[:1]:
        if SequenceMatcher(None, path, each).ratio() >= _LIKE:
            return each
    return None


def is_near(name: str, keys: frozenset[str]) -> bool:
    """Whether a name is told here, as a misspelling of one of some keys."""
    return _near(name, keys) is not None


def _finding(run: Run, place: Place, near: str) -> Finding:
    consequence = of_unknown(run, place.document)
    silent, is_free = consequence == "silent", near not in place.document.found
    return Finding(
        f"{place.document.kind} has no key `{place.path}`",
        (place.key_label("ignored" if silent else "refused"),),
        ("it is dropped without a word",) if silent else (),
        f"did you mean `{near}`?" if is_free else f"remove it: `{near}` is there",
        Fix((place.renamed(near) if is_free else place.removed(),), "unsafe"),
        consequence=consequence,
    )


RULE = Rule(
    name="misspelt-key",
    severity="error",
    consequence="parse",
    consumers=("llamafactory", "axolotl", "accelerate", "trl"),
    sources=(
        (
            "llamafactory 0.9.5 hparams/parser.py `_parse_args`; axolotl 0.19.0 "
            "utils/schemas/config.py; accelerate 1.15.0 commands/config/config_args.py "
            "`BaseConfig.from_yaml_file`; trl 0.19.0 to 1.16.0 scripts/utils.py `TrlParser`, which "
            "drops them before"
        ),
    ),
    check=_check,
)
