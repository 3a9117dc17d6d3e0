"""A bundle that is read again: its files, and their paths relative to a spec beside it."""

import os
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.names import is_written_as_path
from tunec.compiler.lints.documents import Reading
from tunec.compiler.lints.neighbours import is_python
from tunec.compiler.local_paths import OF_SCRIPTS
from tunec.compiler.start_commands import RUN
from tunec.compiler.target import Target
from tunec.schemas.data_paths import data_kind
from tunec.schemas.frozen import replace

_HEADER: Final = "# tunec "
_OUTPUT: Final = "output"
"""The folder of checkpoints in a bundle, which no spec names."""


class OpenedBundle(Struct, frozen=True):
    """A directory that `tunec compile` wrote."""

    root: Path
    targets: Mapping[str, Target]
    """The targets that have a folder there."""

    def files(self) -> tuple[Path, ...]:
        """The files of the targets, at most one folder below the target's."""
        found = (each for name in self.targets for each in sorted((self.root / name).glob("**/*")))
        depth = len(self.root.parts) + 3
        return tuple(each for each in found if each.is_file() and len(each.parts) <= depth)

    @property
    def base(self) -> Path:
        """The directory in which its program starts, from which the paths in its files count."""
        at_home = (
            name for name, each in self.targets.items() if any(s.at_home for s in each.starts)
        )
        return self.root / next(at_home, "")

    def is_own(self, word: str) -> bool:
        """Whether a word of a command is the path of a file in the bundle."""
        return word.partition("/")[0] in self.targets


def open_bundle(paths: Iterable[Path], targets: Mapping[str, Target]) -> OpenedBundle | None:
    """The bundle that contains one of the paths, or is one."""
    for each in paths:
        for root in (each, each.parent, each.parent.parent, each.parent.parent.parent):
            if _is_entry(root / RUN):
                held = {name: one for name, one in targets.items() if (root / name).is_dir()}
                return OpenedBundle(root, held)
    return None


def _is_entry(file: Path) -> bool:
    try:
        lines = read_bytes(file).decode("utf-8", "replace").splitlines()[1:2]
    except Unreadable:
        return False
    return any(line.startswith(_HEADER) for line in lines)


def with_files(paths: Iterable[Path], bundle: OpenedBundle | None) -> tuple[Path, ...]:
    """The named files; for the entry of a bundle, or its directory, all files that it starts."""
    if bundle is None:
        return tuple(paths)
    entries = (bundle.root, bundle.root / RUN)
    every = ((bundle.files() if each in entries else (each,)) for each in paths)
    return tuple(dict.fromkeys(each for some in every for each in some))


def without_script(reading: Reading, bundle: OpenedBundle | None) -> Reading:
    """What was read, without scripts, whose settings come from the bundle's files."""
    if bundle is None:
        return reading
    kept = tuple(each for each in reading.documents if each.format != "python")
    unread = tuple(each for each in reading.unread if not is_python(each.name))
    return replace(reading, documents=kept, unread=unread)


# ── paths ────────────────────────────────────────────────────────────────────────────────────────


def seen_from(
    values: Mapping[str, Any], bundle: OpenedBundle | None, place: Path
) -> dict[str, Any]:
    """Slots with local paths relative to the future spec instead of the bundle.

    The directory of checkpoints in the bundle is left out, since the new bundle has its own.
    """
    if bundle is None:
        return dict(values)
    moved = _Moved(posixpath.normpath(Path(os.path.relpath(bundle.base, place)).as_posix()))
    found = {**values, **dict(moved.slots(values, bundle))}
    own = Path(os.path.relpath(bundle.root / _OUTPUT, place)).as_posix()
    if found.get("runtime.output") == own:
        del found["runtime.output"]
    return found


class _Moved(Struct, frozen=True):
    base: str
    """The directory in which the program is started, relative to the future spec."""

    def slots(self, values: Mapping[str, Any], bundle: OpenedBundle) -> Iterator[tuple[str, Any]]:
        for slot, value in values.items():
            if slot in ("model.path", "ppo.critic") and value and is_written_as_path(value):
                yield slot, self._directory(value)
            elif slot in ("data.train", "data.evaluation") and value:
                yield slot, self._data(value)
            elif slot == "data.more" and value:
                yield slot, tuple(map(self._data, value))
            elif slot == "objective.rewards" and value:
                yield slot, tuple(map(self._reward, value))
            elif slot == "runtime.output" and value:
                yield slot, self._path(value)
            elif slot == "launch.script" and value:
                words = shlex.split(value)
                yield slot, shlex.join(w if bundle.is_own(w) else self._word(w) for w in words)

    def _path(self, path: str) -> str:
        whole = path.startswith(("/", "~"))
        return path if whole else posixpath.normpath(posixpath.join(self.base, path))

    def _directory(self, path: str) -> str:
        found = self._path(path)
        return found if found.startswith((".", "/", "~")) else f"./{found}"

    def _data(self, path: str) -> str:
        kind = data_kind(path)
        if kind == "directory":
            return self._directory(path)
        return self._path(path) if kind == "file" else path

    def _reward(self, name: str) -> str:
        path, _, function = name.rpartition(":")
        return f"{self._path(path)}:{function}" if path.endswith(".py") else name

    def _word(self, word: str) -> str:
        is_file = PurePosixPath(word).suffix.lower() in OF_SCRIPTS and "://" not in word
        return self._path(word) if is_file or word.startswith(("./", "../")) else word
