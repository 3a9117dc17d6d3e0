"""How files reach the one who asked for them: a directory, a comparison, or stdout."""

from argparse import Namespace
from pathlib import Path

from tunec.compiler.cli.files import differing, write_all
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session
from tunec.compiler.ir.show import plain
from tunec.compiler.target import Artifact

Files = dict[Path, str]
"""Texts by the path below the output directory."""


def deliver(files: Files, options: Namespace, session: Session) -> int:
    """Write files below `-o`, or compare with what is there; one file and no `-o`: to stdout."""
    if options.output is None:
        return _to_stdout(files, session)
    below = {Path(options.output) / path: text for path, text in files.items()}
    if options.check:
        return _check(below, session)
    for path in write_all(below):
        session.note(f"wrote {path}")
    return OK


def _to_stdout(files: Files, session: Session) -> int:
    if session.format == "json":
        return OK
    if len(files) != 1:
        names = ", ".join(path.as_posix() for path in files)
        raise Misuse(f"there are {len(files)} files ({names}): give a directory with -o")
    session.result(next(iter(files.values())))
    return OK


def _check(files: Files, session: Session) -> int:
    stale = differing(files)
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
