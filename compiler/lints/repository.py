"""What may be read for the sake of a file that is linted, and what the repository around it says.

For each package the nearest folder upward counts that names a release of it, within the project.
There a lock is believed before what people wrote, and that before what a README tells them to type.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.disk import Unreadable, near_files, read_bytes
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.notebook import is_notebook
from tunec.compiler.frontend.project import Outside, project_root, require_inside
from tunec.compiler.lints.environment import Pin
from tunec.compiler.lints.installing import notebook_requirements
from tunec.compiler.lints.requirement_files import (
    COMMANDS,
    StatedRequirement,
    included,
    rank_of,
    stated,
)
from tunec.compiler.releases import ANY, Releases, parsed
from tunec.schemas.frozen import replace
from tunec.schemas.source import start_of

_MOST_NAMES: Final = 10_000
"""Names that are looked at in one folder."""
_MOST_INCLUDED: Final = 16
"""Files that one requirements file takes in."""


class Reach(Struct, frozen=True):
    """A file may name those of its own project, and those that the command line names too."""

    named: frozenset[Path] = frozenset()
    """What the command line names, links followed."""
    allow_outside: bool = False

    def contents(self, wanted: Path, path: Path, folder: str = "") -> Iterator[tuple[Path, bytes]]:
        """The files of that name that can be read and may be: in the folder first, then nearest."""
        root = self.root_of(path)
        inside = near(Path(folder, wanted), path) if folder else ()
        for each in [wanted] if wanted.is_absolute() else (*inside, *near(wanted, path)):
            try:
                if require_inside(each, None) not in self.named:
                    require_inside(each, root)
                yield each, read_bytes(each)
            except Unreadable:
                continue

    def leaves_out(self, wanted: Path, path: Path) -> bool:
        """Whether a file is not read since it lies outside the project.

        That is so where the name leads out by itself, and where a file is found further up.
        """
        root = self.root_of(path)
        if _is_outside(path.resolve().parent / wanted, root):
            return True
        around = (each for each in near(wanted, path) if _is_outside(each, root))
        return any(map(os.path.isfile, around))  # a name that is too long is no error to it

    def admits(self, found: Path, path: Path) -> bool:
        """Whether what lies at a place may be looked into for the sake of a file."""
        return not _is_outside(found, self.root_of(path))

    def root_of(self, path: Path) -> Path | None:
        """The directory that a file's names may not leave; None: they may lead anywhere."""
        return None if self.allow_outside else project_root(path.resolve())

    def folders(self, path: Path) -> Iterator[Path]:
        """The folders around a file, nearest first, up to the root of its project."""
        full = path.resolve()
        root = project_root(full)
        yield from (each for each in full.parents if each.is_relative_to(root))


def reach_of(paths: Iterable[Path], *, allow_outside: bool = False) -> Reach:
    """How far files reach that a command line names."""
    return Reach(frozenset(_resolved(paths)), allow_outside)


def _resolved(paths: Iterable[Path]) -> Iterator[Path]:
    for each in paths:
        with suppress(Unreadable):
            yield require_inside(each, None)


def _is_outside(path: Path, root: Path | None) -> bool:
    try:
        require_inside(path, root)
    except Unreadable as fault:
        return isinstance(fault, Outside)
    return False


def near(wanted: Path, path: Path) -> Iterator[Path]:
    """Beside the file that names it, in the directories around that, where the command runs."""
    yield from (folder / wanted for folder in path.resolve().parents)
    yield wanted


def called_as(found: Path, by: Path) -> Path:
    """A file that another one names: from the working directory, as that one is called."""
    return found if by.is_absolute() else Path(os.path.relpath(found))


class RankedRequirement(Struct, frozen=True):
    """A requirement, where it is written, and how early that is believed."""

    stated: StatedRequirement
    where: str
    rank: int


class Repository(Struct, frozen=True):
    """What files require, folder by folder; each folder is read once."""

    reach: Reach
    folders: dict[Path, Mapping[str, Pin]] = field(default_factory=dict)

    def pins(self, files: Iterable[Path]) -> Mapping[str, Pin]:
        """The pin of each package for a run of these files, the first of them before the rest.

        A notebook of Colab runs where nothing of the project is installed.
        """
        every, found = tuple(files), dict[str, Pin]()
        for each in filter(lambda path: is_notebook(path.name), every):
            found = {**_chosen(self._of_cells(each)), **found}
        every = tuple(each for each in every if not self._is_of_colab(each))
        for folder in dict.fromkeys(each.parent for each in every):
            for around in self.reach.folders(folder / "_"):
                for package, pin in self._of(around, folder / "_").items():
                    found.setdefault(package, pin)
        if "trl" in found and self._is_of_others(found["trl"], every):
            del found["trl"]
        return {**found, **_beside_transformers(found)}

    def _is_of_others(self, pin: Pin, files: Iterable[Path]) -> bool:
        """Whether a README's line is for other scripts: its TRL lacks a class that one imports."""
        bounds = (bound for each in pin.ranges for bound in each.bounds if bound[0] not in _OPEN)
        is_old = any(parsed(version) <= _FIRST_CONFIG for _, version in bounds)
        if not is_old or not Path(pin.where).name.startswith("README"):
            return False
        texts = (self._text(each, each) for each in files if each.suffix == ".py")
        return any(_CONFIG.search(text) for text in texts if text)

    def _of(self, folder: Path, by: Path) -> Mapping[str, Pin]:
        if folder not in self.folders:
            self.folders[folder] = _chosen(self._said(folder, by))
        return self.folders[folder]

    def _said(self, folder: Path, by: Path) -> Iterator[RankedRequirement]:
        for name in _names(folder):
            rank = rank_of(name)
            if rank is not None:
                yield from self._of_file(folder / name, rank, by)

    def _of_cells(self, path: Path) -> Iterator[RankedRequirement]:
        """What a notebook installs itself, which holds for no other file."""
        text = self._text(path, path)
        for each in () if text is None else notebook_requirements(text, path.name):
            yield RankedRequirement(each, f"{called_as(path, path)}:{each.line}", 0)

    def _is_of_colab(self, path: Path) -> bool:
        text = self._text(path, path) if is_notebook(path.name) else None
        return text is not None and _COLAB.search(text) is not None and not _INSTALLS.search(text)

    def _of_file(self, path: Path, rank: int, by: Path) -> Iterator[RankedRequirement]:
        waiting, seen = [path], set[Path]()
        while waiting and len(seen) < _MOST_INCLUDED:
            file = waiting.pop()
            text = None if file in seen else self._text(file, by)
            seen.add(file)
            if text is None:
                continue
            for each in stated(file.name, text):
                yield RankedRequirement(each, f"{called_as(file, by)}:{each.line}", rank)
            if file.suffix == ".txt":
                waiting += (file.parent / each for each in included(text))

    def _text(self, file: Path, by: Path) -> str | None:
        try:
            require_inside(file, self.reach.root_of(by))
            return read_bytes(file).decode("utf-8", "replace")
        except Unreadable:
            return None


_OPEN: Final = (">", ">=", "!=")
_FIRST_CONFIG: Final = parsed("0.9.2")
_CONFIG: Final = re.compile(r"from trl import [^#]*?\bSFTConfig\b")
"""trl 0.8.6 has no SFTConfig, and 0.9.2 has it."""
_COLAB: Final = re.compile(r'"colab"\s*:')
_INSTALLS: Final = re.compile(r"pip3? install[^\n]*(?:-r|-e|--requirement|--editable)\b|git clone")
"""How a notebook installs the project that it lies in."""


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(e.name for _, e in zip(range(_MOST_NAMES), entries, strict=False))
    except OSError:
        return []


def _chosen(said: Iterable[RankedRequirement]) -> Mapping[str, Pin]:
    by_package: dict[str, list[RankedRequirement]] = {}
    for each in said:
        by_package.setdefault(each.stated.package, []).append(each)
    return {
        package: _pin(every)
        for package, every in by_package.items()
        if not all(each.stated.is_newest for each in every)
    }


def _pin(said: list[RankedRequirement]) -> Pin:
    """What is believed first; of a range, the one release that something else names within it."""
    first = min(each.rank for each in said if not each.stated.is_newest)
    held = [each for each in said if each.rank == first]
    pin = _of(held)
    beside = (each for each in said if _is_beside(first, each.rank))
    if others := [each for each in beside if _differs(each, pin)]:
        return _of([*held, *others])
    if pin.exact is not None:
        return pin
    for each in sorted(said, key=lambda each: each.rank):
        exact = each.stated.exact
        if exact is not None and pin.contains(exact):
            return _of([each])
    return pin


_TRL_ASKS: Final = (
    ("4.40", "0.11"),
    ("4.46", "0.13"),
    ("4.50", "0.18.2"),
    ("4.53.2", "0.20"),
    ("4.56.1", "0.23.1"),
)
"""A transformers, and the release of trl from which on none below it goes with that: Requires-Dist
of trl 0.9.6, 0.11.4, 0.12.2, 0.13.0, 0.17.0, 0.18.2, 0.20.0 and 0.23.1."""


def _beside_transformers(pins: Mapping[str, Pin]) -> Mapping[str, Pin]:
    """A range of trl, without the releases that the one transformers does not go with."""
    one, pin = pins.get("transformers"), pins.get("trl")
    if one is None or one.exact is None or pin is None or pin.exact is not None:
        return {}
    version = parsed(one.exact)
    bound = next((trl for least, trl in _TRL_ASKS if version < parsed(least)), None)
    if bound is None or not all(each.text for each in pin.ranges):
        return {}
    within = tuple(Releases(f"{each.text},<{bound}") for each in pin.ranges)
    is_possible = any(
        sign in (">", ">=", "~=") and parsed(at) < parsed(bound)
        for each in pin.ranges
        for sign, at in each.bounds
    )
    return {"trl": replace(pin, ranges=within)} if is_possible else {}


_LISTS: Final = (rank_of("requirements.txt"), rank_of("requirements_train.txt"))
_LOCK: Final = rank_of("uv.lock")


def _is_beside(first: int, other: int) -> bool:
    """Whether it is not known which of two counts where they disagree.

    So it is of lists that lie side by side, and of a command that installs something else after
    what is listed.
    """
    is_list = first in _LISTS and other in _LISTS
    return is_list or (other in COMMANDS and first != _LOCK)


def _differs(each: RankedRequirement, pin: Pin) -> bool:
    is_other = each.stated.exact not in (None, pin.exact) or each.stated.is_newest
    return each.stated.is_own or (is_other and pin.exact is not None)


def _of(held: list[RankedRequirement]) -> Pin:
    ranges = dict.fromkeys(ANY if each.stated.is_newest else each.stated.releases for each in held)
    is_own = any(each.stated.is_own for each in held)
    return Pin(held[0].stated.package, tuple(ranges), held[0].where, is_own)


def unreadable(path: Path, why: object) -> Diagnostic:
    """What is reported of a file or folder of which nothing is read.

    An empty folder is a wrong path; one with other files holds nothing that could be wrong.
    """
    is_folder = path.is_dir()
    what = "no file below it could be a config" if is_folder else why
    at = start_of(str(path))
    found = error("E0201", f"{path} cannot be read: {what}", at, help=near_files(path))
    is_data = is_folder and any(map(Path.is_file, path.rglob("[!.]*")))
    return replace(found, severity="note") if is_data else found


def not_one_run(folder: Path) -> Diagnostic:
    """The fault of a folder where the files of one run are named."""
    at = start_of(str(folder))
    return error("E0201", f"{folder} is a folder", at, help="name the files of one run")


_LIBRARIES: Final = (
    *("peft", "transformers", "trl", "accelerate", "deepspeed", "diffusers", "bitsandbytes"),
    *("llamafactory", "llmtuner", "axolotl", "ms-swift", "verl", "openrlhf", "alignment-handbook"),
    *("salesforce-lavis", "lavis", "lmdeploy", "vllm", "xtuner", "opencompass", "trlx"),
    *("lm_eval", "lmms_eval", "rllm"),
)
_PROJECTS: Final = (*_LIBRARIES, "llava")
_AS_NAMED: Final = "|".join(_PROJECTS).replace("-", "[-_]")
_NAMED_SO: Final = re.compile(
    rf"""(?m)\bname\s*=\s*(["']?)(?:\w+[-_])?(?:{_AS_NAMED})\1\s*(?:$|,|\))"""
)
_BROUGHT: Final = frozenset(
    {"vendor", "vendored", "third_party", "thirdparty", "3rdparty", "third-party", "external"}
)
"""Folders of what others wrote; what lies in them has a folder of its own."""
_SHOWN: Final = ("examples", "recipes", "scripts", "tests", "benchmarks", "docs")
"""Folders of a library's repository that its users do not run."""
_BUILT: Final = "build/lib/"
"""Where setuptools copy a package to, to build it."""
_SHIPPED: Final = re.compile(
    r"examples/(?:accelerate|ascend|deepspeed|extras|inference|ktransformers|merge_lora"
    r"|deploy|export|infer|megatron|train/(?:multi-gpu|multi-node|optimizer|grpo/multi_node))/"
)
"""What LLaMA-Factory 0.8 to 0.9.5 and ms-swift 3.9 to 4.6 ship, and people who change them leave
alone."""


def copy_of(file: Path, roots: Sequence[Path]) -> Path | None:
    """The copy of a library that a file belongs to, as an example or a part of its package.

    In a project that is such a copy as a whole, it is what only the library's makers write.
    """
    full = file.resolve()
    for folder in full.parents:
        below = full.relative_to(folder).as_posix()
        if is_top(folder, roots):
            is_shipped = _SHIPPED.match(below) is not None and _names_itself(folder)
            is_brought = is_shipped or below.startswith(_BUILT)
            return folder if folder in roots and is_brought else None
        if (
            is_library(folder)
            or folder.parent.name in _BROUGHT
            or below.startswith(_BUILT)
            or (below.partition("/")[0] in _SHOWN and _names_itself(folder))
        ):
            return folder
    return None


def is_library(folder: Path) -> bool:
    """Whether a folder is a library's package."""
    return folder.name in _LIBRARIES and (folder / "__init__.py").is_file()


def is_top(folder: Path, roots: Sequence[Path]) -> bool:
    """Whether a folder lies below no project: a copy of a library may be a project, too."""
    return not any(root in folder.parents for root in roots)


def _names_itself(folder: Path) -> bool:
    for name in ("setup.py", "setup.cfg", "pyproject.toml"):
        with suppress(Unreadable):
            if _NAMED_SO.search(read_bytes(folder / name).decode("utf-8", "replace")):
                return True
    return False
