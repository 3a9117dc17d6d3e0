"""How files reach the user: written to a directory, compared, or printed to stdout."""

from argparse import Namespace
from pathlib import Path

from tunec.compiler.cli.session import INPUT, OK, Session
from tunec.compiler.ir.values import plain
from tunec.compiler.target import Artifact
from tunec.compiler.writing import differing, write_all

Files = dict[Path, str]
"""Texts by the path below the output directory."""


def deliver(
    files: Files, options: Namespace, session: Session, *, are_bundled: bool = False
) -> int:
    """Write files below `-o`, or compare them with existing files; without `-o`, print them.

    A single file is printed alone, several each below a line with its path. `are_bundled`: whether
    a directory of them contains the entry that starts them.
    """
    if options.output is None:
        return _to_stdout(files, session, are_bundled=are_bundled)
    folder = Path(options.output)
    below = {folder / path: text for path, text in files.items()}
    if options.check:
        return _check(below, folder, session)
    for path in write_all(below, folder):
        session.note(f"wrote {path}")
    return OK


def _to_stdout(files: Files, session: Session, *, are_bundled: bool) -> int:
    if session.format == "json":
        return OK
    if len(files) == 1:
        session.result(next(iter(files.values())))
        return OK
    session.result("\n".join(f"==> {path.as_posix()} <==\n{text}" for path, text in files.items()))
    bundle = " as one directory that you can start" if are_bundled else ""
    session.note(f"{len(files)} files: -o DIR writes them{bundle}")
    return OK


def _check(files: Files, folder: Path, session: Session) -> int:
    stale = differing(files, folder)
    for path, what in stale.items():
        session.note(f"{path}: {what}")
    return INPUT if stale else OK


def to_json(target: str, artifact: Artifact) -> dict[str, object]:
    """A file as `--format json` prints it."""
    return {
        "target": target,
        "file": artifact.name,
        "text": artifact.text,
        "values": plain(artifact.values),
    }
