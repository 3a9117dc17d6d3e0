"""One side of a comparison: the specs of a file, of a directory, or of a git revision."""

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.frontend.disk import Unreadable
from tunec.compiler.frontend.project import project_root, require_inside

_SECONDS: Final = 120
_ENDINGS: Final = frozenset((".yaml", ".yml"))


class NoRevision(LookupError):
    """Git does not know the revision, or is not installed; the message says which."""


def revisions_of(text: str) -> tuple[str, str] | None:
    """The two revisions of `main..`, `main..HEAD` or `..feature`; None if the text is not a range.

    An empty start means HEAD, an empty end the working tree.
    """
    old, dots, new = text.partition("..")
    if not dots or Path(text).exists():
        return None
    return old or "HEAD", new


@contextmanager
def checked_out(revision: str, repository: Path) -> Iterator[Path]:
    """A folder with the files of a revision; the repository itself for an empty revision.

    The folder holds only files that git tracks; the working tree is not touched. Raises NoRevision.
    """
    if not revision:
        yield repository
        return
    archive = _archive(revision, repository)
    with tempfile.TemporaryDirectory(prefix="tunec-") as temporary:
        folder = Path(temporary, re.sub(r"[^\w.-]", "-", revision))  # messages name it by its path
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            # Python before 3.11.4 knows no filters, Python 3.12 and 3.13 ask for one
            files.extraction_filter = getattr(tarfile, "data_filter", None)
            members = (each for each in files if _stays_inside(each, folder))
            files.extractall(folder, members)  # noqa: S202  a link is seen before what follows it
        (folder / ".git").mkdir()  # its files may name each other, as in the repository
        yield folder


def _stays_inside(member: tarfile.TarInfo, folder: Path) -> bool:
    """Whether a member, and what it links to, lies in the folder that it is extracted to."""
    place = folder / member.name
    found = place.parent / member.linkname if member.issym() else place
    return found.resolve().is_relative_to(folder.resolve())


def root_of(directory: Path) -> Path:
    """The top folder of the repository that contains a directory. Raises NoRevision."""
    return Path(_git(["rev-parse", "--show-toplevel"], directory).decode().strip())


def commit_of(revision: str, repository: Path) -> str:
    """The commit that a revision names. Raises NoRevision."""
    asked = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    try:
        return _git(asked, repository).decode().strip()
    except NoRevision:
        raise NoRevision(f"there is no revision {revision!r}") from None


def blob(commit: str, file: Path, repository: Path) -> bytes:
    """The bytes of a file in a commit; the file's path is relative to the top.

    Raises NoRevision.
    """
    return _git(["cat-file", "blob", f"{commit}:{file.as_posix()}"], repository)


def _archive(revision: str, repository: Path) -> bytes:
    return _git(["archive", "--format=tar", commit_of(revision, repository)], repository)


def _git(arguments: list[str], directory: Path) -> bytes:
    git = shutil.which("git")
    if git is None:
        raise NoRevision("git is not installed")
    done = subprocess.run(  # noqa: S603  our own words, and a revision behind --end-of-options
        [git, *arguments],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", errors="replace").strip()
        raise NoRevision(said.splitlines()[-1] if said else f"git {arguments[0]} failed")
    return done.stdout


_IS_SPEC: Final = re.compile(r"^tunec\s*:", re.MULTILINE)
_MOST: Final = 1 << 20
"""How many characters of a file are searched; the version is near its top."""


class Side(Struct, frozen=True):
    """The location of the specs of one side."""

    root: Path
    files: Mapping[str, Path]
    """Files by name, which is the path below the root without its suffix."""


def side_of(path: Path) -> Side:
    """The specs of a directory, or of a single file. Raises FileNotFoundError."""
    if path.is_file():
        return Side(path.parent, {path.stem: path})
    if not path.is_dir():
        raise FileNotFoundError(path)
    found = sorted(_specs(path))
    return Side(path, {file.relative_to(path).with_suffix("").as_posix(): file for file in found})


def _specs(directory: Path) -> Iterator[Path]:
    """The specs below a directory; links count if they do not lead out of the project."""
    root = project_root(directory.resolve() / "spec.yaml")
    for place, folders, names in os.walk(directory):  # goes on where a folder vanishes or is closed
        folders[:] = [each for each in folders if not each.startswith(".")]
        for name in names:
            file = Path(place, name)
            is_yaml = file.suffix in _ENDINGS and not name.startswith(".")
            if is_yaml and _is_inside(file, root) and is_spec(file):
                yield file


def _is_inside(file: Path, root: Path) -> bool:
    try:
        return require_inside(file, root).is_file()
    except Unreadable:
        return False


def is_spec(file: Path) -> bool:
    """Whether a file gives the version of the spec language, as every spec does."""
    try:
        with file.open(encoding="utf-8") as text:
            return _IS_SPEC.search(text.read(_MOST)) is not None
    except (OSError, UnicodeDecodeError):
        return False
