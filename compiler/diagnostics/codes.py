"""Names of diagnostics: codes for errors, words for notes and warnings.

Each has a page in `pages/`; the pages are the table.
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
"""The meaning of a code's first two digits."""

_CODE: Final = re.compile(r"E\d{4}")


def is_code(id: str) -> bool:
    """Whether a diagnostic's id is that of an error, which cannot be allowed."""
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
    """The title of a code or name: the heading of its page."""
    return page(id).partition("\n")[0].removeprefix(f"# {id}: ")


def _folder() -> Path:
    return Path(__file__).parent / "pages"
