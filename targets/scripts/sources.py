"""Files of repositories that are on no package index, each pinned to a commit and its content.

A file is taken from a clone that the user names, or downloaded, at first use, and stored under the
hash of its content, as in git (`git hash-object`), so that only the file that the rows were read
from is used.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from msgspec import Struct

from tunec.compiler.consumers.environments import EnvironmentUnavailable, default_cache
from tunec.compiler.consumers.network import fetching

SECONDS: Final = 30.0
_ADDRESS: Final = "https://raw.githubusercontent.com"


class Source(Struct, frozen=True):
    """One file of a repository at a commit."""

    repository: str
    commit: str
    path: str
    blob: str
    """The SHA-1 of the content as a git blob."""

    @property
    def name(self) -> str:
        """The citation of the file."""
        return f"{self.repository}@{self.commit[:7]}:{self.path}"


def obtain(source: Source, clones: Iterable[Path] = (), cache: Path | None = None) -> Path:
    """The path of the file on this machine: taken from a clone, or downloaded, if it is absent.

    `clones` are clones of any repositories, at any commit: the content is looked up in their
    history. Raises EnvironmentUnavailable if it cannot be obtained, or its content differs.
    """
    place = place_of(source, cache)
    if not place.exists() or blob(place.read_bytes()) != source.blob:
        held = (_in_clone(source, clone) for clone in clones)
        _keep(next((each for each in held if each is not None), None) or _fetched(source), place)
    return place


def obtain_all(
    repository: str, commit: str, blobs: Mapping[str, str], folder: str = ""
) -> dict[str, str]:
    """The local paths of a commit's files, by their paths below a folder of it.

    `blobs`: the git hash of each content. Raises EnvironmentUnavailable.
    """
    every = {path: Source(repository, commit, folder + path, blob) for path, blob in blobs.items()}
    return {path: str(obtain(source)) for path, source in every.items()}


def place_of(source: Source, cache: Path | None = None) -> Path:
    """The path at which the file is stored."""
    return (cache or default_cache().parent / "sources") / f"{source.blob}.py"


def _in_clone(source: Source, clone: Path) -> bytes | None:
    """The content from a clone's history; None if it is not there."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(clone), "cat-file", "blob", source.blob]
    found = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
    same = found.returncode == 0 and blob(found.stdout) == source.blob
    return found.stdout if same else None


def blob(content: bytes) -> str:
    """The git hash of a content."""
    return hashlib.sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


def _fetched(source: Source) -> bytes:
    fetching([source.name], "GitHub")
    address = f"{_ADDRESS}/{source.repository}/{source.commit}/{source.path}"
    try:
        with urlopen(address, timeout=SECONDS) as answer:  # noqa: S310  the scheme is written above
            content: bytes = answer.read()
    except (URLError, TimeoutError, ConnectionError) as failure:
        raise EnvironmentUnavailable(source.name, str(failure)) from failure
    if blob(content) != source.blob:
        raise EnvironmentUnavailable(source.name, "its content is not the pinned one")
    return content


def _keep(content: bytes, place: Path) -> None:
    """Write a temporary file and rename it, so that nobody reads half a file."""
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(name).replace(place)
