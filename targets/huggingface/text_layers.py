"""The layer names that an adapter's pattern stands for, for programs that accept only names."""

import re
from typing import Final

from tunec.compiler.ir.plan import Plan

_IN_THE_TEXT: Final = re.compile(r"\\\.language_model|language_model\\\.")
_NAMES: Final = re.compile(r"\\\.\(([\w|]+)\)")


def names_in_the_text(plan: Plan) -> tuple[str, ...]:
    """The layers of the language model that a pattern names; empty for any other pattern.

    A vision-language model's tower has layers with some of these names too.
    """
    pattern = plan.adapter.targets
    if not isinstance(pattern, str) or not _IN_THE_TEXT.search(pattern):
        return ()
    return tuple(name for found in _NAMES.findall(pattern) for name in found.split("|"))
