"""`tunec report`: one page about a plan, or about the tree of a fleet."""

from argparse import Namespace
from html import escape
from pathlib import Path
from typing import Final

from tunec.compiler.cli.inputs import asked_targets, judged, load
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session
from tunec.compiler.diagnostics.diagnostic import Diagnostic, has_errors
from tunec.compiler.driver import plan
from tunec.compiler.writing import write_all

_STDOUT: Final = "-"


def run(options: Namespace, session: Session) -> int:
    """Write the page; for a spec without a plan it says why, and the exit code is 1."""
    what = Path(options.what)
    text, said = _fleet(what, options) if what.is_dir() else _plan(options, session)
    file = None if options.output == _STDOUT else options.output
    if file is not None:
        write_all({Path(file): text})
    if session.format == "json":
        page = {"file": file, "page": text if file is None else None}
        session.json({**page, "diagnostics": [each.to_json() for each in said]})
    elif file is None:
        session.result(text)
    return INPUT if has_errors(said) else OK


Page = tuple[str, tuple[Diagnostic, ...]]
"""The text, and the faults of what it shows."""


def _fleet(tree: Path, options: Namespace) -> Page:
    from tunec.compiler.fleet.lock import LOCK, lock_lines
    from tunec.compiler.fleet.summary import rows
    from tunec.compiler.review.report.pages import fleet_page

    given = options.hardware or options.overrides or options.targets or options.policies
    if given:
        raise Misuse(
            "a tree is shown as it was built: --hardware, --set and similar options are for specs"
        )
    if not (tree / LOCK).is_file():
        raise Misuse(f"{tree} holds no {LOCK}; `tunec fleet FILE -o {tree}` builds a tree")
    found = list(rows(lock_lines(tree)))
    if not found:
        raise Misuse(f"{tree / LOCK} is empty")
    return fleet_page(tree.resolve().name, found), ()


def _plan(options: Namespace, session: Session) -> Page:
    from tunec.compiler.review.report.pages import plan_page

    loaded = load(options.what, options, session)
    planned = plan(loaded, asked_targets(options.targets, loaded, session))
    found, sources = judged(planned, options)
    said = (*planned.diagnostics, *found)
    texts = {**loaded.sources, **sources}
    session.diagnose(said, texts)
    return _from_its_folder(plan_page(planned, said, texts), options.what), said


def _from_its_folder(text: str, spec: str) -> str:
    """A page without the folder of a spec named by its full path, since it is read elsewhere."""
    folder = Path(spec).parent
    return text.replace(f"{escape(str(folder))}/", "") if folder.is_absolute() else text
