"""Prints the comparison of `tunec diff`, and decides whether it fails."""

from collections.abc import Iterator, Sequence
from difflib import unified_diff

from tunec.compiler.cli.session import Session
from tunec.compiler.review.diff.compare import Comparison
from tunec.compiler.review.diff.formats import comparison_json, comparison_markdown, comparison_text
from tunec.compiler.review.diff.meanings import KINDS


def print_comparison(comparison: Comparison, files: Sequence[str], session: Session) -> None:
    """Print the comparison, then the diffs of files, in the requested format."""
    if session.format == "json":
        session.json({**comparison_json(comparison), "files": files})
    elif session.format == "markdown":
        block = ["", "```diff", *files, "```"] if files else []
        session.tell("\n".join([comparison_markdown(comparison), *block]))
    else:
        session.tell("\n".join([comparison_text(comparison), *([""] if files else []), *files]))


def fails(comparison: Comparison, at: str | None) -> bool:
    """Whether any change is of a class that must fail, or of a worse class."""
    if at is None or comparison.kind is None:
        return False
    grave = [str(kind) for kind in KINDS]
    return grave.index(comparison.kind) <= grave.index(at)


def file_diff(name: str, old: str, new: str) -> Iterator[str]:
    """The lines of a unified diff of one file."""
    lines = unified_diff(old.splitlines(), new.splitlines(), f"old/{name}", f"new/{name}", n=2)
    yield from (line.rstrip("\n") for line in lines)
