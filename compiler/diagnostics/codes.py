"""The codes of hard errors. Each has a page in `pages/`, and the pages are the table."""

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

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


@lru_cache(maxsize=1)
def known_codes() -> tuple[str, ...]:
    """Every code that has a page, sorted."""
    names = (entry.name for entry in _folder().iterdir())
    stems = (name.removesuffix(".md") for name in names if name.endswith(".md"))
    return tuple(sorted(filter(is_code, stems)))


def page(code: str) -> str:
    """The page of a code, as Markdown; raise KeyError for a code that has none."""
    if code not in known_codes():
        raise KeyError(code)
    return _folder().joinpath(f"{code}.md").read_text("utf-8")


def title(code: str) -> str:
    """What a code says in a few words: the heading of its page, without the code."""
    return page(code).partition("\n")[0].removeprefix(f"# {code}: ")


def _folder() -> Traversable:
    return files("tunec.compiler.diagnostics") / "pages"
