"""The example scripts of diffusers: which one a command starts, and the flags that it takes."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import PurePath
from typing import Any, Final

from tunec.compiler.diagnostics.wording import nearly
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.kinds import schema

KIND: Final = "diffusers"
_FILE: Final = "diffusers/examples.json"
"""Written by `tunec.targets.generate_example_flags` from the scripts of 15 releases."""

_LIKE: Final = 0.88
_MOST_STRANGE: Final = 2
"""Flags like none of an example's, above which a script is another's of the same name: peft's
examples/boft_dreambooth has a train_dreambooth.py, too."""


def commands(run: LintContext) -> Iterator[tuple[Document, str]]:
    """The flags of each example that the run starts, with the name of its script."""
    launched: dict[str, str] = {}
    for each in run.documents:
        if each.kind == "launch" and not each.is_view:
            launched[each.name] = _script(each.value("script"))
        if each.kind == KIND:
            script = launched.get(each.name, "")
            yield each, "" if _is_of_another(each, script) else script


def _is_of_another(document: Document, script: str) -> bool:
    """Whether flags like none of the example's tell another script of the same name."""
    flags = scripts().get(script, {}).get("flags", ())
    strange = [path for path in document.found if not is_flag(path, flags)]
    return sum(not is_near(path, flags) for path in strange) > _MOST_STRANGE


def is_flag(path: str, flags: Sequence[str]) -> bool:
    """Whether it is a flag, or the beginning of one, which argparse takes for it."""
    return any(flag.startswith(path) for flag in flags)


def is_near(path: str, flags: Sequence[str]) -> bool:
    """Whether it is nearly a flag."""
    return nearly(path, frozenset(flags), _LIKE) is not None


def _script(words: Any) -> str:
    """`train_dreambooth_lora` of the words behind a launcher."""
    is_list = isinstance(words, Sequence) and not isinstance(words, str)
    first = words[0] if is_list and words else words
    return PurePath(first).stem if isinstance(first, str) else ""


@cache
def scripts() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """By script: `flags` that some release takes, and `required` by every one."""
    found: Mapping[str, Mapping[str, Sequence[str]]] = schema(_FILE)["scripts"]
    return found


@cache
def choices() -> Mapping[str, Sequence[str]]:
    """The words of flags that take no others, in every script."""
    found: Mapping[str, Sequence[str]] = schema(_FILE)["choices"]
    return found


@cache
def types() -> Mapping[str, str]:
    """`int`, `float`, `switch` or `many` of flags that are alike in every script; else text."""
    found: Mapping[str, str] = schema(_FILE)["types"]
    return found
