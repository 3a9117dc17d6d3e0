"""What the rest of a repository says of the files in it: who names them, who reads them.

Of a config that nothing names, of a file of tests and of one that a copy of a library brings, no
run is known. Where the repository's scripts name another one, or mention the engine and take no
file for it, what is found in it happens to nobody: it is a note.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.grouping import TRAINING
from tunec.compiler.lints.own_source import REMARK, texts_below, without_remarks
from tunec.compiler.lints.python_runs import is_reached
from tunec.compiler.lints.repository import copy_of, is_top
from tunec.compiler.lints.suppression import (
    NO_READER,
    OF_A_COPY,
    OF_TESTS,
    UNNAMED,
    UNNAMED_ENGINE,
    UNREACHED,
    Reason,
    lowered,
)

_PROGRAMS: Final = (".py", ".sh", ".bash", ".slurm", ".sbatch", ".ipynb", ".bat", "Makefile")
_ENDINGS: Final = (
    *_PROGRAMS,
    *(".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".env", ".md", ".rst", ".txt", "justfile"),
)
_PYTHON: Final = (".py", ".ipynb")
_NO_COMMANDS: Final = (".py", ".json", ".toml", ".cfg", ".ini")
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
_WHOLE: Final = (*_FORMATS, "toml")
_OF_TRANSFORMERS: Final = r"transformers|\btrl\b|(?i:unsloth)"
_READERS: Final[Mapping[str, re.Pattern[str]]] = {
    kind: re.compile(words)
    for kind, words in {
        **dict.fromkeys(("hf", *TRL), _OF_TRANSFORMERS),
        "accelerate": "accelerate",
        "ai-toolkit": "(?i:ai-toolkit|ostris)",
        "axolotl": "(?i:axolotl)",
        "deepspeed": "(?i:deepspeed)",
        "glm4": "(?i:glm)",
        "llamafactory": "(?i:llama.?factory|llmtuner)",
        "ms-swift": "swift",
        "musubi-tuner": "(?i:musubi)",
        "openrlhf": "(?i:openrlhf)",
        "sd-scripts": "(?i:sd-scripts|kohya|train_network|sdxl_train)",
        "simpletuner": "(?i:simple.?tuner)",
        "torchtune": r"torchtune|\btune run\b",
        "unsloth": "(?i:unsloth)",
        "verl": "verl",
    }.items()
}
"""How a repository names the program that reads the files of a kind."""
_GOES_ON: Final = frozenset({"silent", "slow", "save", "out-of-memory", "unclear"})
"""Consequences of a run that is not rejected."""
_BUILT: Final = r"[{$%*]"
"""What follows the beginning of a file name that a program composes."""
_LEAST_BEGUN: Final = 4
_BUILT_IN: Final = "/build/lib/"
"""Where setuptools copy what they build."""


class Mentions(Struct, frozen=True, dict=True):
    """The texts of a repository by path, read when they are first needed."""

    roots: tuple[Path, ...] = ()

    def names(self, file: str) -> bool:
        """Whether another file has the name of a file, with or without its ending, or builds it."""
        if file not in self._named:
            self._named[file] = any(True for _ in self._naming(file))
        return self._named[file]

    def names_folder(self, file: str) -> bool:
        """Whether something takes any file of its folder: `configs/*.yaml`, `configs/$NAME`."""
        folder = PurePosixPath(file).parent.name
        taken = re.compile(rf"(?<![\w-]){re.escape(folder)}/[\"']?{_BUILT}")
        return bool(folder) and any(taken.search(text) for _, text in self._texts)

    def is_of_a_copy(self, file: str) -> bool:
        """Whether a file belongs to a copy of a library, and no program outside of it names it."""
        copy = copy_of(Path(file), self.roots)
        if copy is None:
            return False
        within = "" if is_top(copy, self.roots) else f"{copy.as_posix()}/"
        named = (path for path in self._naming(file) if not (within and path.startswith(within)))
        return not any(path.endswith(_PROGRAMS) or within for path in named)

    def _naming(self, file: str) -> Iterator[str]:
        """The paths of other files that name it, or all files of its folder."""
        own, name = Path(file).resolve().as_posix(), PurePosixPath(file)
        begun = "|".join(re.escape(name.name[:n]) for n in range(_LEAST_BEGUN, len(name.name)))
        built = rf"|(?<![\w.-])(?:{begun}){_BUILT}" if begun else ""
        stem = rf"""["'/]{re.escape(name.stem)}["']"""
        pattern = re.compile(rf"(?<![\w-]){re.escape(name.name)}(?!\w)|{stem}{built}")
        yield from (path for path, text in self._texts if path != own and pattern.search(text))

    def names_in_remarks(self, file: str) -> bool:
        """Whether a file is named only in comments, as one that was taken out of use."""
        name = re.compile(rf"(?<![\w-]){re.escape(PurePosixPath(file).name)}(?!\w)")
        return not self.names(file) and any(name.search(each) for each in self._remarks)

    def leaves_to_nobody(self, kind: str) -> bool:
        """Whether programs mention an engine, or related ones, and none accepts a file for it."""
        programs = (text for path, text in self._texts if path.endswith(_PROGRAMS))
        mine = [text for text in programs if any(word in text for word in _WORDS[kind])]
        return bool(mine) and not any(_TAKES[kind].search(text) for text in mine)

    def lacks_reader(self, kind: str, file: str) -> bool:
        """Whether there are Python programs, and nothing names the one that reads such a file."""
        if kind not in self._readers:
            words = _READERS[kind]
            self._readers[kind] = {path for path, text in self._texts if words.search(text)}
        has_programs = any(path.endswith(_PYTHON) for path, _ in self._texts)
        return has_programs and self._readers[kind] <= {Path(file).resolve().as_posix()}

    @cached_property
    def _readers(self) -> dict[str, set[str]]:
        return {}

    @cached_property
    def commands(self) -> tuple[str, ...]:
        """The texts in which commands stand."""
        return tuple(text for path, text in self._texts if not path.endswith(_NO_COMMANDS))

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
        every = (each for root in self.roots for each in texts_below(root, _ENDINGS))
        return tuple({path: text for path, text in every if _BUILT_IN not in path}.items())


def unless_unnamed(
    found: Iterable[Diagnostic], runs: Sequence[LintContext], files: Set[str], mentions: Mentions
) -> Iterator[Diagnostic]:
    """The findings; those of which no run is known are lowered by the reason for it.

    An error affects whoever uses the file, so it is reported if anybody may. `files`: those that
    were found below a folder, and not named by the user.
    """
    every = tuple(found)
    told = {each for one in every if one.severity != "note" for each in _files(one)}
    if told.isdisjoint(files):
        yield from every
        return
    dead = _of_tests(files, told)
    dead |= {each: OF_A_COPY for each in told & files if mentions.is_of_a_copy(each)}
    dead |= _of_no_reader(runs, told & files, mentions)
    idle, unsure = set[str](), set[str]()
    for kind, mine in _engine_files(runs, files).items():
        unnamed = {each for each in mine & told if not mentions.names(each)}
        dead |= {each: UNNAMED for each in unnamed if mentions.names_in_remarks(each)}
        if unnamed and mentions.leaves_to_nobody(kind):
            dead |= dict.fromkeys(unnamed, UNNAMED)
        elif len(unnamed) > 1 or any(map(mentions.names, mine - unnamed)):
            idle |= unnamed  # one of several choices, of which another may be taken
            unsure |= unnamed if kind == "deepspeed" else set()
    erring = {name for one in every if one.severity == "error" for name in _files(one)}
    beside = _beside_named(runs, files & erring, mentions)
    texts = {each.name: each.text for run in runs for each in run.documents if each.name in files}
    for each in every:
        why = next((dead[file] for file in _files(each) if file in dead), None)
        why = why or _unnamed(each, idle | (beside if each.severity == "error" else set()), unsure)
        if why is None and not _is_reached(each, texts, mentions):
            why = UNREACHED
        yield each if why is None else lowered(each, why)


def _of_no_reader(
    runs: Iterable[LintContext], files: Set[str], mentions: Mentions
) -> dict[str, Reason]:
    """Files of a program that nothing else in the repository names."""
    every = {(e.name, e.kind) for run in runs for e in run.documents if e.format in _WHOLE}
    kinds: dict[str, list[str]] = {}
    for name, kind in sorted(every):
        if name in files:
            kinds.setdefault(name, []).append(kind)
    return {
        name: NO_READER
        for name, mine in kinds.items()
        if all(kind in _READERS and mentions.lacks_reader(kind, name) for kind in mine)
    }


def _unnamed(found: Diagnostic, idle: Set[str], unsure: Set[str]) -> Reason | None:
    """`unsure`: files in which a refusal is a warning, since nobody may ever meet it."""
    files = _files(found)
    if not idle.isdisjoint(files) and found.consequence in _GOES_ON:
        return UNNAMED
    return None if unsure.isdisjoint(files) else UNNAMED_ENGINE


def _is_reached(found: Diagnostic, texts: Mapping[str, str], mentions: Mentions) -> bool:
    """Whether a script's statement stands under no condition that no command is known to meet."""
    span = found.span
    if span is None or found.severity == "note" or not span.file.endswith(".py"):
        return True
    return is_reached(texts.get(span.file, ""), span.line, mentions.commands)


def _beside_named(runs: Iterable[LintContext], files: Set[str], mentions: Mentions) -> set[str]:
    """Files that nothing names, where something names others of their kind."""
    every = [each for run in runs for each in run.documents if each.format in _FORMATS]
    kinds: dict[str, set[str]] = {}
    for each in every:
        if each.kind in TRAINING | {"hf"} and not each.is_view:
            kinds.setdefault(each.kind, set()).add(each.name)
    found = set[str]()
    for names in kinds.values():
        unnamed = {e for e in names & files if not (mentions.names(e) or mentions.names_folder(e))}
        found |= unnamed if unnamed and any(map(mentions.names, names - unnamed)) else set()
    return found


def _files(found: Diagnostic) -> tuple[str, ...]:
    return tuple(each.span.file for each in found.labels if each.span is not None)


def _of_tests(files: Set[str], told: Set[str]) -> dict[str, Reason]:
    """The files of tests; none if all files are of tests, as these are then meant."""
    from tunec.compiler.lints.python_files import is_of_tests

    tested = {each for each in files if is_of_tests(each)}
    return {} if tested == files else dict.fromkeys(tested & told, OF_TESTS)


def _engine_files(runs: Iterable[LintContext], files: Set[str]) -> dict[str, Set[str]]:
    """The files for each engine among the found files."""
    every = [each for run in runs for each in run.of(*_TAKES)]
    mine = [e for e in every if e.format in _FORMATS and not e.is_view and e.name in files]
    return {kind: {each.name for each in mine if each.kind == kind} for kind in _TAKES}
