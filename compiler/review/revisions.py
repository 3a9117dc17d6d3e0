"""Git revisions as directories: what a revision holds, in a folder that goes away again."""

import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

_SECONDS: Final = 120


class NoRevision(LookupError):
    """Git does not know the revision, or is not there; the message says which."""


def revisions_of(text: str) -> tuple[str, str] | None:
    """The two revisions of `main..`, `main..HEAD` or `..feature`; None if the text is no range.

    An empty end means what is checked out, as with `git diff`.
    """
    old, dots, new = text.partition("..")
    if not dots or Path(text).exists():
        return None
    return old or "HEAD", new


@contextmanager
def checked_out(revision: str, repository: Path) -> Iterator[Path]:
    """A folder with the files of a revision; the repository itself for the empty revision.

    Only what git tracks is in it: nothing of the working tree is touched. Raises NoRevision.
    """
    if not revision:
        yield repository
        return
    archive = _archive(revision, repository)
    with tempfile.TemporaryDirectory(prefix="tunec-") as folder:
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


def root_of(directory: Path) -> Path:
    """The top of the repository that a directory is in. Raises NoRevision."""
    return Path(_git(["rev-parse", "--show-toplevel"], directory).decode().strip())


def _archive(revision: str, repository: Path) -> bytes:
    asked = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    try:
        commit = _git(asked, repository)
    except NoRevision:
        raise NoRevision(f"there is no revision {revision!r}") from None
    return _git(["archive", "--format=tar", commit.decode().strip()], repository)


def _git(arguments: list[str], directory: Path) -> bytes:
    git = shutil.which("git")
    if git is None:
        raise NoRevision("git is not installed")
    done = subprocess.run(  # noqa: S603  our own words, and a revision behind --end-of-options
        [git, *arguments], cwd=directory, capture_output=True, timeout=_SECONDS, check=False
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", errors="replace").strip()
        raise NoRevision(said.splitlines()[-1] if said else f"git {arguments[0]} failed")
    return done.stdout
