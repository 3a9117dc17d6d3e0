"""Write the flags of diffusers' example scripts, from a clone of the diffusers repository.

`python -m tunec.targets.generate_example_flags CLONE RELEASE...` rewrites
`schemas/json/diffusers/examples.json`: for every script that trains, the flags that its argparse
accepts in any of the releases (tags such as `v0.35.2`), and those that every release requires. The
scripts are parsed and never run.
"""

import ast
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final

from msgspec import Struct, field

from tunec.targets.clones import git, literal
from tunec.targets.generate_schemas import FOLDER

FILE: Final = "diffusers/examples.json"
_PREFIXES: Final = ("train_", "textual_inversion")
_LEFT_OUT: Final = ("research_projects", "community", "flax", "test_")


class _Script(Struct):
    """The flags of one script, over all releases that have it."""

    flags: set[str] = field(default_factory=set)
    required: set[str] | None = None


class _Found(Struct):
    scripts: dict[str, _Script] = field(default_factory=dict)
    types: dict[str, set[str]] = field(default_factory=dict)
    choices: dict[str, list[Any] | None] = field(default_factory=dict)
    """The choices of each flag; None if some script accepts any value."""

    def add(self, name: str, text: str) -> None:
        """Add the flags of one script in one release."""
        script = self.scripts.setdefault(name, _Script())
        required = set()
        for flag, told in _flags(text):
            script.flags.add(flag)
            required |= {flag} if told["required"] else set()
            self.types.setdefault(flag, set()).add(told["type"])
            known = self.choices.get(flag, [])
            words = told["choices"]
            is_closed = known is not None and words is not None
            self.choices[flag] = [*dict.fromkeys([*(known or ()), *words])] if is_closed else None
        before = script.required
        script.required = required if before is None else before & required


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; return the exit status."""
    clone, *releases = sys.argv[1:] if arguments is None else arguments
    found = _Found()
    for release in releases:
        for path in git(clone, "ls-tree", "-r", "--name-only", release, "examples").splitlines():
            if _is_example(path):
                found.add(PurePath(path).stem, git(clone, "show", f"{release}:{path}"))
    target = FOLDER / FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(_document(found, releases), indent=1) + "\n", encoding="utf-8")
    return 0


def _document(found: _Found, releases: Sequence[str]) -> dict[str, Any]:
    scripts = {
        name: {"flags": sorted(each.flags), "required": sorted(each.required or ())}
        for name, each in sorted(found.scripts.items())
        if each.flags
    }
    kinds = {flag: next(iter(kinds)) for flag, kinds in found.types.items() if len(kinds) == 1}
    return {
        "$comment": f"argparse of huggingface/diffusers examples, {', '.join(releases)}",
        "types": dict(sorted((flag, kind) for flag, kind in kinds.items() if kind != "str")),
        "choices": {flag: words for flag, words in sorted(found.choices.items()) if words},
        "scripts": scripts,
    }


def _is_example(path: str) -> bool:
    name = PurePath(path).name
    is_left_out = any(each in path for each in _LEFT_OUT)
    return name.endswith(".py") and name.startswith(_PREFIXES) and not is_left_out


def _flags(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each flag that the script adds to its parser: type, choices, and whether it is required."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        names = [literal(each) for each in node.args]
        told = {each.arg: each.value for each in node.keywords if each.arg}
        is_switch = literal(told.get("action")) in ("store_true", "store_false")
        kind = "switch" if is_switch else getattr(told.get("type"), "id", "str")
        choices = literal(told.get("choices"))
        for name in names:
            if isinstance(name, str) and name.startswith("--"):
                yield (
                    name[2:],
                    {
                        "required": literal(told.get("required")) is True,
                        "type": "many" if "nargs" in told else kind,
                        "choices": choices if isinstance(choices, list | tuple) else None,
                    },
                )


if __name__ == "__main__":
    sys.exit(main())
