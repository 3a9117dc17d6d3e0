"""Whether a finding in a repository has a witness, and the level that its weakest premise leaves.

A rule's finding in a file rests on premises: something uses the file (`_use`), the program that
reads it is the one that is assumed (`_reader`), and its values are used as they are written. Where
a premise is not known, it gives a reason of `tunec.compiler.lints.suppression`. One reason lowers a
finding to the level that it leaves; two leave a note. Only files that were found below a folder are
asked for a witness: one that the user names is used, by a reader that the user knows. Nor is the
reader asked where the user gives devices or releases.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.endings import PARSERS, Started, is_said_to_end, is_seen, packages_of
from tunec.compiler.lints.environment import split_requirement
from tunec.compiler.lints.evidence import OF_TRAINER, programs_about, programs_at
from tunec.compiler.lints.index import is_rule, rule
from tunec.compiler.lints.own_source import texts_below, without_remarks
from tunec.compiler.lints.python_runs import is_reached
from tunec.compiler.lints.repository import copy_of, is_top
from tunec.compiler.lints.suppression import (
    ELSEWHERE,
    FILLED_IN,
    IN_TEXT,
    NO_READER,
    OF_A_COPY,
    OF_TESTS,
    PROGRAM_GONE,
    READER_TAKEN,
    READER_UNSEEN,
    SET_BESIDE,
    UNNAMED,
    UNREACHED,
    UNSTARTED,
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
_BUILT: Final = r"[{$%*]"
"""What follows the beginning of a file name that a program composes."""
_LEAST_BEGUN: Final = 4
_BUILT_IN: Final = "/build/lib/"
"""Where setuptools copy what they build."""


class Mentions(Struct, frozen=True, dict=True):
    """The texts of a repository by path, read when they are first needed."""

    roots: tuple[Path, ...] = ()

    def is_named_by(self, file: str) -> str:
        """What has the name of a file, or builds it: a `program`, a `text`, or nothing."""
        if file not in self._named:
            paths = self._naming(file)
            is_run = any(map(_is_program, paths)) or self.names_folder(file)
            self._named[file] = "program" if is_run else "text" if paths else ""
        return self._named[file]

    def names_folder(self, file: str) -> bool:
        """Whether something takes any file of its folder: `configs/*.yaml`, `configs/$NAME`."""
        path = PurePosixPath(file)
        name = rf"(?:[^\s\"'/]*{re.escape(path.suffix)}|[\w{{}}$]+)(?![\w./*{{}}])"
        taken = re.compile(rf"(?<![\w-]){re.escape(path.parent.name)}/[\"']?(?={_BUILT}){name}")
        hint = f"{path.parent.name}/"
        texts = (text for _, text in self._texts if hint in text)
        return bool(path.parent.name) and any(map(taken.search, texts))

    def is_of_a_copy(self, file: str) -> bool:
        """Whether a file belongs to a copy of a library, and no program outside of it names it."""
        copy = copy_of(Path(file), self.roots)
        if copy is None:
            return False
        within = "" if is_top(copy, self.roots) else f"{copy.as_posix()}/"
        named = [path for path in self._naming(file) if not (within and path.startswith(within))]
        if within and self._is_common(file):
            end = "/".join(PurePosixPath(file).parts[-2:])
            named = [path for path, text in self._texts if path in named and end in text]
        return not any(_is_program(path) or within for path in named)

    def _is_common(self, file: str) -> bool:
        """Whether several files have the name: who says the name may mean another of them."""
        end = f"/{PurePosixPath(file).name}"
        return sum(path.endswith(end) for path, _ in self._texts) > 1

    def line_of(self, found: Diagnostic) -> str:
        """The line at which a finding begins."""
        span = found.span
        if span is None:
            return ""
        path = Path(span.file).resolve().as_posix()
        text = next((text for each, text in self._whole if each == path), "")
        lines = text.splitlines()
        return lines[span.line - 1] if span.line <= len(lines) else ""

    def programs_naming(self, file: str) -> list[str]:
        """The texts of programs that have the name of a file."""
        paths = frozenset(filter(_is_program, self._naming(file)))
        return [text for path, text in self._texts if path in paths]

    def _naming(self, file: str) -> tuple[str, ...]:
        """The paths of other files that name it."""
        if file not in self._paths_naming:
            self._paths_naming[file] = tuple(self._search(file))
        return self._paths_naming[file]

    def _search(self, file: str) -> Iterator[str]:
        own, name = Path(file).resolve().as_posix(), PurePosixPath(file)
        begun = "|".join(re.escape(name.name[:n]) for n in range(_LEAST_BEGUN, len(name.name)))
        built = rf"|(?<![\w.-])(?:{begun}){_BUILT}" if begun else ""
        stem = rf"""["'/]{re.escape(name.stem)}["']"""
        pattern = re.compile(rf"(?<![\w-]){re.escape(name.name)}(?!\w)|{stem}{built}")
        hint = name.stem[:_LEAST_BEGUN]  # in whatever the pattern finds
        texts = ((path, text) for path, text in self._texts if path != own and hint in text)
        yield from (path for path, text in texts if pattern.search(text))

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
    def has_programs(self) -> bool:
        """Whether there is a program or a script that could name a file."""
        return any(_is_program(path) for path, _ in self._texts)

    @cached_property
    def _named(self) -> dict[str, str]:
        return {}

    @cached_property
    def _paths_naming(self) -> dict[str, tuple[str, ...]]:
        return {}

    @cached_property
    def _texts(self) -> tuple[tuple[str, str], ...]:
        return tuple((path, without_remarks(path, text)) for path, text in self._whole)

    @cached_property
    def _whole(self) -> tuple[tuple[str, str], ...]:
        every = (each for root in self.roots for each in texts_below(root, _ENDINGS))
        return tuple({path: text for path, text in every if _BUILT_IN not in path}.items())


def _is_program(path: str) -> bool:
    return path.endswith(_PROGRAMS)


def as_witnessed(found: Iterable[Diagnostic], witness: "Witness") -> Iterator[Diagnostic]:
    """The findings, each at the level that its weakest premise leaves."""
    for each in found:
        is_asked = each.severity != "note" and not each.is_bug
        is_asked = is_asked and not witness.files.isdisjoint(_files(each))
        yield weakest(each, witness.against(each)) if is_asked else each


def weakest(found: Diagnostic, reasons: Iterable[Reason]) -> Diagnostic:
    """A finding at the level that the reasons against it leave together."""
    every = tuple(dict.fromkeys(reasons))
    if not every:
        return found
    return lowered(found, every[0] if len(every) == 1 else Reason("; ".join(e.text for e in every)))


class Witness(Struct, frozen=True, dict=True):
    """What a repository shows for and against the premises of findings in its files."""

    runs: Sequence[LintContext]
    files: Set[str]
    """Those that were found below a folder, and not named by the user."""
    mentions: Mentions
    is_described: bool = False
    """Whether the user gives devices or releases, and so knows the program that reads the files."""

    def against(self, found: Diagnostic) -> Iterator[Reason]:
        """The reasons against a finding, at most one for each premise."""
        if found.id == _NOT_JSON and _TEMPLATE.search(self.mentions.line_of(found)):
            yield FILLED_IN
        uses = (self._use(each) for each in _files(found) if each in self.files)
        reasons = [each for each in uses if each is not None]
        yield from sorted(reasons, key=lambda each: each.error != "note")[:1]
        if not self._is_reached(found):
            yield UNREACHED
        if self._is_elsewhere(found):
            yield ELSEWHERE
        if self._is_set_beside(found):
            yield SET_BESIDE
        if not self.is_described:
            taken = self._unseen(found) or self._reader(found)
            yield from () if taken is None else (taken,)

    def _use(self, file: str) -> Reason | None:
        """What is against the premise that a file is used."""
        if file in self._of_tests:
            return OF_TESTS
        if self.mentions.is_of_a_copy(file):
            return OF_A_COPY
        if file.endswith(".py"):
            return None if self.mentions.is_named_by(file) else UNSTARTED
        if file not in self._kinds:
            return None
        named = self.mentions.is_named_by(file)
        if all(e in _READERS and self.mentions.lacks_reader(e, file) for e in self._kinds[file]):
            return NO_READER
        if not named:
            is_one_of_several = self.mentions.has_programs and len(self._kinds) > 1
            return UNNAMED if is_one_of_several else None
        return IN_TEXT if named == "text" else None

    def _reader(self, found: Diagnostic) -> Reason | None:
        """What is against the premise that the known program reads it."""
        held = None if is_code(found.id) else self._document(found)
        if held is None or is_of_engines(found.id) or not self.mentions.has_programs:
            return None
        run, document = held
        if document.format == "shell":
            programs = programs_at(run, found)
            if any(_is_gone(run, name) for name in programs):
                return PROGRAM_GONE
            is_one = any(name.endswith(".py") or run.own.sources_of(name) for name in programs)
            is_known = not is_one or run.own.shows_in(programs, OF_TRAINER)
            return None if is_known else READER_TAKEN
        is_whole = document.format in _WHOLE and document.kind in _OF_PROGRAMS
        is_known = run.own.shows(PARSERS) or any(map(_TRL.search, self.mentions.commands))
        return READER_TAKEN if is_whole and not is_known else None

    def _unseen(self, found: Diagnostic) -> Reason | None:
        """What is against an error that says that the program which reads the file ends."""
        held = self._document(found) if is_said_to_end(found) and not is_code(found.id) else None
        is_call = any(file.endswith(_PYTHON) for file in _files(found))
        is_known = is_call or self._is_for_engines(found)
        if held is None or is_known or not self.mentions.has_programs:
            return None
        run, document = held
        has_copy = any(map(run.own.packs, packages_of(document.kind)))
        programs, about = programs_at(run, found), programs_about(run, found)
        started = Started(programs, run.own, about, self.mentions.commands)
        return None if is_seen(document, started) and not has_copy else READER_UNSEEN

    def _is_for_engines(self, found: Diagnostic) -> bool:
        """Whether a finding is about what engines read, whichever program is started."""
        kinds = {e for file in _files(found) for e in self._kinds.get(file, {""})}
        return is_of_engines(found.id) or kinds <= _ENGINES

    def _document(self, found: Diagnostic) -> tuple[LintContext, Document] | None:
        label = found.primary
        if label is None:
            return None
        mine = self._documents.get(found.file, ())
        return next((each for each in mine if label.path in each[1].found), None)

    def _is_set_beside(self, found: Diagnostic) -> bool:
        """Whether the commands that name a config also give the key of a finding as a flag."""
        label = found.primary
        if label is None or self._kinds.get(found.file, _DEEPSPEED) == _DEEPSPEED:
            return False
        flag = re.sub("[-_]", "[-_]", label.path.rpartition(".")[2])
        name = re.escape(PurePosixPath(found.file).name)
        for text in (texts := self.mentions.programs_naming(found.file)):
            starts = len(re.findall(rf"(?<![\w-]){name}(?!\w)", text))
            if not 0 < starts <= len(re.findall(rf"--{flag}(?![\w-])", text)):
                return False
        return bool(texts)

    def _is_elsewhere(self, found: Diagnostic) -> bool:
        """Whether two files are compared that a script names in another checkout's folder."""
        files = frozenset(_files(found))
        runs = self.runs if len(files) > 1 else ()
        mine = (each.documents for each in runs if files <= {e.name for e in each.documents})
        texts = {e.text for documents in mine for e in documents if e.format == "shell"}
        here = {part for root in self.mentions.roots for part in root.parts}
        return any(
            here.isdisjoint(_GOES.findall(text)[-1:]) for text in texts if _GOES.search(text)
        )

    def _is_reached(self, found: Diagnostic) -> bool:
        """Whether a statement stands under no condition that no command is known to meet."""
        span = found.span
        if span is None or not span.file.endswith(".py"):
            return True
        texts = [each.text for _, each in self._documents.get(span.file, ())]
        return not texts or is_reached(texts[0], span.line, self.mentions.commands)

    @cached_property
    def _of_tests(self) -> Set[str]:
        """The files of tests; none if all files are of tests, as these are then meant."""
        from tunec.compiler.lints.python_files import is_of_tests

        tested = {each for each in self.files if is_of_tests(each)}
        return frozenset() if tested == self.files else tested

    @cached_property
    def _documents(self) -> dict[str, list[tuple[LintContext, Document]]]:
        """The documents of each file, with the runs that read them."""
        held: dict[str, list[tuple[LintContext, Document]]] = {}
        for run in self.runs:
            for each in run.documents:
                held.setdefault(each.name, []).append((run, each))
        return held

    @cached_property
    def _kinds(self) -> dict[str, set[str]]:
        """The kinds of each config that was found."""
        kinds = {
            name: {e.kind for _, e in held if e.format in _WHOLE and not e.is_view}
            for name, held in self._documents.items()
            if name in self.files
        }
        return {name: mine for name, mine in kinds.items() if mine}


_NOT_JSON: Final = "E0105"
_GOES: Final = re.compile(
    r"(?m)^[ \t]*(?:cd|pushd)[ \t]+[\"']?(?:/|~/)(?:[\w.-]+/)*([\w.-]+)/?(?![\w/$])"
)
"""The name of a folder that a script changes to by its whole path."""
_TEMPLATE: Final = re.compile(r":\s*(?:[A-Z][A-Z0-9_]+|<[^<>]+>|\{\{.*\}\}|\$\{?\w+\}?)\s*,?\s*$")
"""A value that a program puts in before the file is read."""
_OF_PROGRAMS: Final = frozenset({"hf", *TRL})
"""Kinds of config that a program of the user's own reads."""
_TRL: Final = re.compile(r"\btrl +(?:sft|dpo|kto|grpo|reward|rloo) ")
"""What gives a whole file to the classes whose fields its keys are."""
_DEEPSPEED: Final = {"deepspeed"}
_ENGINES: Final = frozenset({"accelerate", "bash", "deepspeed", "nccl", "slurm", "torch"})
"""What reads its file or its command itself, whichever program is started."""


def _is_gone(run: LintContext, program: str) -> bool:
    """Whether a program is not here any more: its folder is, and has other files."""
    folder = PurePosixPath(program).parent.as_posix()
    is_path = program.endswith(".py") and not program.startswith(("/", "~")) and folder != "."
    return is_path and run.own.lacks_program(program) and run.own.has_folder(folder)


def is_of_engines(name: str) -> bool:
    """Whether a rule is about what engines, launchers or the shell read, whoever trains."""
    return (
        is_rule(name) and {split_requirement(each)[0] for each in rule(name).consumers} <= _ENGINES
    )


def _files(found: Diagnostic) -> tuple[str, ...]:
    return tuple(each.span.file for each in found.labels if each.span is not None)
