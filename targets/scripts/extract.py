"""Definitions that are taken from a script and run alone, for scripts with side effects on import.

Only the standard library is imported here: it runs in a consumer's environment.
"""

import ast
from collections.abc import Mapping
from typing import Any


def definitions(text: str, names: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """The classes and functions of those names, run from the script's text.

    `given` holds the names that they use and do not define. Raises LookupError for a missing one.
    """
    tree = ast.parse(text)
    kinds = (ast.ClassDef, ast.FunctionDef)
    chosen = [each for each in tree.body if isinstance(each, kinds) and each.name in names]
    missing = set(names) - {each.name for each in chosen}
    if missing:
        raise LookupError(f"the script does not define {', '.join(sorted(missing))}")
    space = {"__name__": "script", **given}
    module = ast.Module(body=list(chosen), type_ignores=[])
    exec(compile(module, "script.py", "exec"), space)  # noqa: S102  pinned by its content
    return {name: space[name] for name in names}
