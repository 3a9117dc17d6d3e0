"""The files that a script writes before it starts its program."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tunec.compiler.frontend.shell_script import follow
from tunec.compiler.frontend.shell_variables import UNKNOWN as LEFT_OPEN
from tunec.compiler.frontend.shell_words import whole
from tunec.schemas.caches import cached

_OPEN_WORD: Final = re.compile(
    rf'"[^"\n]*{LEFT_OPEN}[^"\n]*"|[^\s",:{{}}\[\]]*{LEFT_OPEN}[^\s",:{{}}\[\]]*'
)
"""A word of a text with a variable whose value is unknown."""


def written_in(script: str, named: str) -> str | None:
    """The text that a script writes to a file before it starts the program; empty if it is unknown.

    None: it writes none of that name.
    """
    name = Path(named).name
    texts = [text for path, text in _files_of(script).items() if Path(path).name == name]
    if len(texts) == 1:
        return _OPEN_WORD.sub('"???"', texts[0])
    return "" if texts or f"> {name}" in script.replace("./", "") else None


@cached(1)
def _files_of(text: str) -> Mapping[str, str]:
    """The files that a script writes; cached, as each of its commands needs them."""
    return follow(whole(text)).files
