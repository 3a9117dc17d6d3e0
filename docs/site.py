"""The site: pages of the repository under their own paths, built by Zensical into build/site/html.

`python -m docs.site` gathers every page that README.md, docs and examples lead to, keeps their
paths, so that their links hold on the site as in the repository, and runs Zensical in its strict
mode on `mkdocs.yml`. Then it adds each page as Markdown, `llms.txt` and the page that plans in the
browser (docs/try_out.py), and holds every link of the built pages to what was built. A link that
leads nowhere ends it with status 1.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any, Final

import yaml
from docs.built_links import faults
from docs.readme import ROOT
from docs.try_out import FileNotFetched, fetch
from docs.try_out import build as build_try_out

SETTINGS: Final = "mkdocs.yml"
TRY_OUT: Final = "try"
"""The folder of the page that plans in the browser."""
_PLACES: Final = (
    "README.md",
    "CHANGELOG.md",
    "docs/*.md",
    "docs/guide/*.md",
    "docs/decisions/*.md",
    "examples/*/README.md",
)
_PARTS: Final = re.compile(
    r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)[`~]*\s*$"
    r"|(?P<bang>!?)\[(?P<text>(?:[^\[\]`]|`[^`]*`|\[[^\]]*\])*)\]\((?P<to>[^)\s]+)\)"
    r"|(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`)",
    re.MULTILINE | re.DOTALL,
)
"""A block of code, a link or a picture, or code in a line: whichever begins first."""
_AWAY: Final = re.compile(r"[a-z][a-z+.-]*:|//|#")
_HEADING: Final = re.compile(r"^# (.+)$", re.MULTILINE)


class SiteFault(Exception):
    """The site cannot be built; the message has a line for each fault."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Build the site of the repository at `root`; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs.site")
    parser.add_argument("--no-build", action="store_true", help="gather the pages, and stop")
    options = parser.parse_args(arguments)
    settings = read_settings(root)
    try:
        pages = gathered(root)
        write(pages, root, root / settings["docs_dir"])
        if not options.no_build:
            build(root, root / settings["site_dir"], pages)
    except SiteFault as fault:
        sys.stderr.write(f"{fault}\n")
        return 1
    return 0


def read_settings(root: Path) -> dict[str, Any]:
    """The settings of `mkdocs.yml` that are used here."""
    loaded: dict[str, Any] = yaml.safe_load((root / SETTINGS).read_text("utf-8"))
    return loaded


# ── gathering ────────────────────────────────────────────────────────────────────────────────────


def gathered(root: Path) -> dict[str, str]:
    """Every page of the site by its path there, with links that hold there.

    What a page links to is a page too; SiteFault names each link to what the repository lacks.
    """
    found: dict[str, str] = {}
    missing: list[str] = []
    waiting = sorted(
        path.relative_to(root).as_posix() for each in _PLACES for path in root.glob(each)
    )
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        text = (root / page).read_text("utf-8")
        for to in sorted(set(_linked(text, page))):
            if not (root / to).exists():
                missing.append(f"{page}: no file {to}")
            elif to.endswith(".md") and to not in seen:
                seen.add(to)
                waiting.append(to)
        found[place(page)] = relinked(text, page, root)
    if missing:
        raise SiteFault("\n".join(missing))
    return dict(sorted(found.items()))


def place(path: str) -> str:
    """The path of a repository page on the site: `README.md` becomes a folder's first page."""
    own = PurePosixPath(path)
    return (own.parent / "index.md").as_posix() if own.name == "README.md" else path


def relinked(text: str, page: str, root: Path) -> str:
    """The text with its links as the site needs them: to pages by their places, else as text."""

    def link(found: re.Match[str]) -> str:
        if not _is_inside(found):
            return found[0]
        to, mark, part = found["to"].partition("#")
        target = _target(page, to)
        if (root / target / "README.md").is_file():
            to = f"{to.rstrip('/')}/README.md"
        elif not target.endswith(".md"):
            return found["text"]
        return f"[{found['text']}]({place(to)}{mark}{part})"

    return _PARTS.sub(link, text)


def _linked(text: str, page: str) -> Iterator[str]:
    """The paths in the repository that a page links to."""
    for found in filter(_is_inside, _PARTS.finditer(text)):
        yield _target(page, found["to"].partition("#")[0])


def _is_inside(found: re.Match[str]) -> bool:
    """Whether a link leads to another file of the repository, and is no picture."""
    return bool(found["to"]) and not found["bang"] and not _AWAY.match(found["to"])


def _target(page: str, to: str) -> str:
    return normpath((PurePosixPath(page).parent / to).as_posix())


# ── writing and building ─────────────────────────────────────────────────────────────────────────


def write(pages: Mapping[str, str], root: Path, folder: Path) -> None:
    """Put the pages, and the pictures beside them, into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for path, text in pages.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    for picture in sorted(root.glob("docs/guide/*.svg")):
        shutil.copy(picture, folder / picture.relative_to(root))


def build(root: Path, html: Path, pages: Mapping[str, str]) -> None:
    """Run Zensical, add the files that it does not write, and check the links of its pages."""
    shutil.rmtree(html, ignore_errors=True)
    program = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "-f", SETTINGS]
    if subprocess.run(program, cwd=root, check=False).returncode:  # noqa: S603  our own arguments
        raise SiteFault("zensical could not build the site (pip install '.[site]' installs it)")
    for path, text in pages.items():
        (html / path).parent.mkdir(parents=True, exist_ok=True)
        (html / path).write_text(text, "utf-8")
    (html / "llms.txt").write_text(llms(read_settings(root), pages), "utf-8")
    left_out = try_out(html / TRY_OUT) if (root / "docs/tryout").is_dir() else ()
    broken = faults(html, left_out)
    if broken:
        raise SiteFault("\n".join(broken))


def try_out(folder: Path) -> Sequence[Path]:
    """Build the page that plans in the browser; the folder that is left out where it cannot be."""
    try:
        fetch()
        build_try_out(folder)
    except FileNotFetched as reason:
        sys.stderr.write(f"the try-out page is left out: {reason}\n")
        return (folder,)
    return ()


def llms(settings: Mapping[str, Any], pages: Mapping[str, str]) -> str:
    """The pages as a list for language models (llmstxt.org): each is there as Markdown."""
    lines = [f"# {settings['site_name']}", "", f"> {settings['site_description']}"]
    named: set[str] = set()
    for section, entries in _sections(settings["nav"]):
        named.update(entries)
        lines += ["", f"## {section}", "", *(_entry(pages, path) for path in entries)]
    others = [path for path in pages if path not in named]
    lines += ["", "## Optional", "", *(_entry(pages, path) for path in others)]
    return "\n".join(lines) + "\n"


def _sections(nav: Sequence[Any]) -> Iterator[tuple[str, list[str]]]:
    for entry in nav:
        for title, inside in entry.items():
            yield title, list(_paths(inside))


def _paths(inside: Any) -> Iterator[str]:
    if isinstance(inside, str):
        yield inside
    for entry in inside if isinstance(inside, list) else ():
        for below in entry.values() if isinstance(entry, dict) else (entry,):
            yield from _paths(below)


def _entry(pages: Mapping[str, str], path: str) -> str:
    heading = _HEADING.search(pages[path])
    return f"- [{heading[1] if heading else path}]({path})"


if __name__ == "__main__":
    sys.exit(main())
