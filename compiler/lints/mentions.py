"""What the rest of a repository says of the files in it: who names them, who reads them.

Of an engine's file that nothing names, and of a file of tests, no run is known. Where the
repository's scripts name another one, or speak of the engine and take no file for it, what is found
in it happens to nobody: it is a note.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.own_source import REMARK, texts_below, without_remarks
from tunec.compiler.lints.repository import is_of_a_copy
from tunec.schemas.frozen import replace

_PROGRAMS: Final = (".py", ".sh", ".bash", ".slurm", ".sbatch", ".ipynb", ".bat", "Makefile")
_ENDINGS: Final = (
    *_PROGRAMS,
    *(".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".env", ".md", ".rst", ".txt", "justfile"),
)
_TAKES: Final[Mapping[str, re.Pattern[str]]] = {
    "deepspeed": re.compile(
        r"HfArgumentParser|TrlParser|H4ArgumentParser|\bdeepspeed\s*=\s*[\w.]+\.(?:deepspeed|ds)\w*"
        r"""|["']--(?:\w+_)?(?:deepspeed|ds)(?:_(?:config\w*|path|file))?["']"""
        r"""|--deepspeed\w*[ =]+["']?\$"""
        r"""|(?:\[|get\()["'](?:deepspeed|ds)(?:_(?:config\w*|path|file))?["']"""
        r"|\A(?=[\s\S]*add_config_arguments\()(?![\s\S]*\bconfig(?:_params)?\s*=\s*\w)"
    ),
    "accelerate": re.compile(r"accelerate launch|accelerate\.commands|\bAccelerator\("),
}
"""How a program accepts an engine's file without naming it."""
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "deepspeed": ("deepspeed",),
    "accelerate": ("accelerate", "torchrun", "deepspeed "),
}
_FORMATS: Final = ("json", "yaml")
_GOES_ON: Final = frozenset({"silent", "slow", "save", "out-of-memory", "unclear"})
"""Consequences of a run that is not rejected."""
_BUILT: Final = r"[{$%*]"
"""What follows the beginning of a file name that a program composes."""
_LEAST_BEGUN: Final = 4

UNNAMED: Final = "nothing in this repository names the file: no run of it is known"
OF_A_COPY: Final = "the file is an example of a library that this repository has a copy of"
OF_TESTS: Final = "the file is one of tests: it is there for them, and no run of it is known"


class Mentions(Struct, frozen=True, dict=True):
    """The texts of a repository by path, read when they are first needed."""

    roots: tuple[Path, ...] = ()

    def names(self, file: str) -> bool:
        """Whether another file has the name of a file, with or without its ending, or builds it."""
        if file not in self._named:
            self._named[file] = any(self._naming(file))
        return self._named[file]

    def _naming(self, file: str) -> Iterator[bool]:
        own, name = Path(file).resolve().as_posix(), PurePosixPath(file)
        begun = "|".join(re.escape(name.name[:n]) for n in range(_LEAST_BEGUN, len(name.name)))
        built = rf"|(?:{begun}){_BUILT}" if begun else ""
        stem = rf"""["'/]{re.escape(name.stem)}["']"""
        pattern = re.compile(rf"(?<![\w-]){re.escape(name.name)}(?!\w)|{stem}{built}")
        yield from (pattern.search(text) is not None for path, text in self._texts if path != own)

    def names_in_remarks(self, file: str) -> bool:
        """Whether a file is named only in comments, as one that was taken out of use."""
        name = re.compile(rf"(?<![\w-]){re.escape(PurePosixPath(file).name)}(?!\w)")
        return not self.names(file) and any(name.search(each) for each in self._remarks)

    def leaves_to_nobody(self, kind: str) -> bool:
        """Whether programs mention an engine, or related ones, and none accepts a file for it."""
        programs = (text for path, text in self._texts if path.endswith(_PROGRAMS))
        mine = [text for text in programs if any(word in text for word in _WORDS[kind])]
        return bool(mine) and not any(_TAKES[kind].search(text) for text in mine)

    @cached_property
    def _named(self) -> dict[str, bool]:
        return {}

    @cached_property
    def _texts(self) -> tuple[tuple[str, str], ...]:
        return tuple((path, without_remarks(path, text)) for path, text in self._whole)

    @cached_property
    def _remarks(self) -> tuple[str, ...]:
        programs = (text for path, text in self._whole if path.endswith(_PROGRAMS))
        return tuple("\n".join(REMARK.findall(each)) for each in programs)

    @cached_property
    def _whole(self) -> tuple[tuple[str, str], ...]:
        return tuple(each for root in self.roots for each in texts_below(root, _ENDINGS))


def unless_unnamed(
    found: Iterable[Diagnostic], runs: Sequence[LintContext], files: Set[str], mentions: Mentions
) -> Iterator[Diagnostic]:
    """The findings; those in a file of which no run is known become notes.

    An error affects whoever uses the file, so it is reported if anybody may. `files`: those that
    were found below a folder, and not named by the user.
    """
    every = tuple(found)
    told = {each for one in every if one.severity != "note" for each in _files(one)}
    if told.isdisjoint(files):
        yield from every
        return
    dead, idle, unsure = _of_tests(files, told), set[str](), set[str]()
    dead |= {each: OF_A_COPY for each in told & files if is_of_a_copy(Path(each), mentions.roots)}
    for kind, mine in _engine_files(runs, files).items():
        unnamed = {each for each in mine & told if not mentions.names(each)}
        dead |= {each: UNNAMED for each in unnamed if mentions.names_in_remarks(each)}
        if unnamed and mentions.leaves_to_nobody(kind):
            dead |= dict.fromkeys(unnamed, UNNAMED)
        elif len(unnamed) > 1 or any(map(mentions.names, mine - unnamed)):
            idle |= unnamed  # one of several choices, of which another may be taken
            unsure |= unnamed if kind == "deepspeed" else set()
    for each in every:
        yield _noted(each, dead, idle, unsure)


def _noted(
    found: Diagnostic, dead: Mapping[str, str], idle: Set[str], unsure: Set[str]
) -> Diagnostic:
    """`unsure`: files in which a refusal is a warning, since nobody may ever meet it."""
    if found.severity == "note":
        return found
    why = next((dead[each] for each in _files(found) if each in dead), None)
    if why is None and not idle.isdisjoint(_files(found)) and found.consequence in _GOES_ON:
        why = UNNAMED
    if why is not None:
        return replace(found, severity="note", notes=(*found.notes, why), fix=None)
    is_unsure = found.severity == "error" and not unsure.isdisjoint(_files(found))
    if not is_unsure:
        return found
    return replace(found, severity="warning", notes=(*found.notes, UNNAMED))


def _files(found: Diagnostic) -> tuple[str, ...]:
    return tuple(each.span.file for each in found.labels if each.span is not None)


def _of_tests(files: Set[str], told: Set[str]) -> dict[str, str]:
    """The files of tests; none if all files are of tests, as these are then meant."""
    from tunec.compiler.lints.python_files import is_of_tests

    tested = {each for each in files if is_of_tests(each)}
    return {} if tested == files else dict.fromkeys(tested & told, OF_TESTS)


def _engine_files(runs: Iterable[LintContext], files: Set[str]) -> dict[str, Set[str]]:
    """The files for each engine among the found files."""
    every = [each for run in runs for each in run.of(*_TAKES)]
    mine = [e for e in every if e.format in _FORMATS and not e.is_view and e.name in files]
    return {kind: {each.name for each in mine if each.kind == kind} for kind in _TAKES}
