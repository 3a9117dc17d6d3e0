"""The pages of the rules as they are run: files and flags of each example."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tunec.compiler.lints.index import rule_page

_SECTION = re.compile(r"^## (?P<kind>Bad|Good)(?::[^\n]*)?$", re.MULTILINE)
_FENCE = re.compile(
    r"^(?:`(?P<name>[^`\n]+)`\n+)?```(?P<word>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Example:
    """One section of a page: files by name, and the arguments of `tunec lint`."""

    title: str
    is_bad: bool
    files: Mapping[str, str]
    arguments: tuple[str, ...]


def examples(rule: str) -> Iterator[Example]:
    """The examples of a rule's page, in order."""
    text = rule_page(rule)
    heads = list(_SECTION.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=True):
        yield _example(head[0], head["kind"] == "Bad", text[head.end() : end])


def _example(title: str, is_bad: bool, body: str) -> Example:
    files: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    for fence in _FENCE.finditer(body):
        if fence["word"] == "console":
            command = shlex.split(fence["text"])
            assert command[:2] == ["tunec", "lint"], f"{title}: {fence['text']}"
            arguments = tuple(command[2:])
        elif fence["name"]:
            files[fence["name"]] = fence["text"]
    assert files, f"{title} has no files"
    assert arguments, f"{title} has no command"
    return Example(title, is_bad, files, arguments)
