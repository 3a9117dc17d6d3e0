"""The layers that a pattern of adapters means by name, for programs that take names alone."""

import re
from typing import Final

from tunec.compiler.ir.plan import Plan

_IN_THE_TEXT: Final = re.compile(r"\\\.language_model|language_model\\\.")
_NAMES: Final = re.compile(r"\\\.\(([\w|]+)\)")


def names_in_the_text(plan: Plan) -> tuple[str, ...]:
    """The layers of the language model that a pattern means by their names; none: it is no such.

    A model that sees has layers of some of these names in its tower too.
    """
    pattern = plan.adapter.targets
    if not isinstance(pattern, str) or not _IN_THE_TEXT.search(pattern):
        return ()
    return tuple(name for found in _NAMES.findall(pattern) for name in found.split("|"))
