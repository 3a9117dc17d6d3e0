"""Check every link of a built site against the files and the anchors that were built."""

from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_LINKS: Final = {"a": "href", "link": "href", "img": "src", "script": "src", "iframe": "src"}


class _Page(HTMLParser):
    """The links of a page, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors.update(each for each in (given.get("id"), given.get("name")) if each)
        link = given.get(_LINKS.get(tag, ""))
        if link:
            self.links.append(link)


def faults(folder: Path, left_out: Sequence[Path] = ()) -> list[str]:
    """The broken links of the pages below a folder, each with its page.

    Links into folders that were left out on purpose do not count.
    """
    absent = {path.resolve() for path in left_out}
    pages = {path.resolve(): _read(path) for path in sorted(folder.rglob("*.html"))}
    return [
        f"{path.relative_to(folder.resolve())}: {link} leads nowhere"
        for path, page in pages.items()
        for link in dict.fromkeys(page.links)
        if _aim(link, path, folder.resolve()) not in absent
        and not _leads(link, path, folder.resolve(), pages)
    ]


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text("utf-8"))
    return page


def _aim(link: str, page: Path, folder: Path) -> Path:
    """The path that a link names."""
    path = unquote(urlsplit(link).path)
    base = folder if path.startswith("/") else page.parent
    return (base / path.lstrip("/")).resolve() if path else page


def _leads(link: str, page: Path, folder: Path, pages: dict[Path, _Page]) -> bool:
    """Whether the target of a link exists; links out of the site are not checked."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    to = _aim(link, page, folder)
    if to.is_dir():
        to = to / "index.html"
    if not to.is_file() or not to.is_relative_to(folder):
        return False
    anchor = unquote(parts.fragment)
    return not anchor or to not in pages or anchor in pages[to].anchors or anchor.startswith("__")
