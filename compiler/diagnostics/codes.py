"""What diagnostics are called: codes of hard errors, names of notes and warnings.

Each has a page in `pages/`, and the pages are the table.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tunec.schemas.caches import cached

AREAS: Final[Mapping[str, str]] = {
    "E01": "syntax",
    "E02": "composition",
    "E03": "typing and names of the spec",
    "E04": "pins",
    "E05": "hardware and devices",
    "E06": "precision and quantisation",
    "E07": "fit and memory",
    "E08": "batch and schedule",
    "E09": "targets, versions and emission",
    "E10": "outputs",
}
"""What the first two digits of a code say."""

_CODE: Final = re.compile(r"E\d{4}")


def is_code(id: str) -> bool:
    """Whether a diagnostic's id is that of a hard error, which nothing can allow."""
    return _CODE.fullmatch(id) is not None


@cached(1)
def known_ids() -> tuple[str, ...]:
    """Every code and name that has a page, sorted; codes come first."""
    names = (entry.name for entry in _folder().iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in names if name.endswith(".md")))


def known_codes() -> tuple[str, ...]:
    """Every code that has a page, sorted."""
    return tuple(filter(is_code, known_ids()))


def known_names() -> tuple[str, ...]:
    """Every note and warning that has a page, sorted."""
    return tuple(each for each in known_ids() if not is_code(each))


def page(id: str) -> str:
    """The page of a code or a name, as Markdown; raise KeyError for one that has none."""
    if id not in known_ids():
        raise KeyError(id)
    return _folder().joinpath(f"{id}.md").read_text("utf-8")


def title(id: str) -> str:
    """What a code or a name says in a few words: the heading of its page, without itself."""
    return page(id).partition("\n")[0].removeprefix(f"# {id}: ")


def _folder() -> Path:
    return Path(__file__).parent / "pages"
