"""Whether a finding in a repository has a witness, and the level that its weakest premise leaves.

A rule's finding in a file rests on premises: something uses the file (`_use`), the program that
reads it is the one that is assumed (`_reader`), and its values are used as they are written. Where
a premise is not known, it gives a reason of `tunec.compiler.lints.suppression`. One reason lowers a
finding to the level that it leaves; two leave a note. Only files that were found below a folder are
asked for a witness: one that the user names is used, by a reader that the user knows. Nor is the
reader asked where the user gives devices or releases, nor what the rule itself was worth.
"""

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import cached_property
from pathlib import PurePosixPath
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.json_nodes import TRAILING
from tunec.compiler.lints import suppression
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.evidence import OF_TRAINER, programs_about, programs_at
from tunec.compiler.lints.facts.launch import leaves, placeholders, starts_several
from tunec.compiler.lints.index import (
    ENGINES,
    is_of_engines,
    is_of_jobs,
    is_of_runs,
    is_of_shell,
    rule,
)
from tunec.compiler.lints.kinds import EXPLAINED
from tunec.compiler.lints.mentions import (
    PARSERS,
    PYTHON,
    READERS,
    STARTS_TRL,
    Mentions,
    Started,
    is_said_to_end,
    is_seen,
    only_prints,
    packages_of,
    times_named,
)
from tunec.compiler.lints.parses import is_hjson
from tunec.compiler.lints.python_runs import is_reached
from tunec.compiler.lints.rule import BY_VERSION, is_dated
from tunec.compiler.lints.suppression import Reason, Said, lowered, unproven, weakest

_WHOLE: Final = ("json", "yaml", "toml")


def as_witnessed(found: Iterable[Diagnostic], witness: "Witness") -> Iterator[Diagnostic]:
    """The findings, each at the level that its weakest premise leaves."""
    for each in found:
        if not witness.is_asked(each):
            yield each
            continue
        known = weakest(each, witness.against(each))
        why = witness.unproven(known)
        yield known if why is None else lowered(known, why)


class Witness(Struct, frozen=True, dict=True):
    """What a repository shows for and against the premises of findings in its files."""

    runs: Sequence[LintContext]
    files: Set[str]
    """Those that were found below a folder, and not named by the user."""
    mentions: Mentions
    is_described: bool = False
    """Whether the user gives devices or releases, and so knows the program that reads the files."""

    def is_asked(self, found: Diagnostic) -> bool:
        """Whether a finding is asked for its premises."""
        is_said = found.severity != "note" and not found.is_bug
        return is_said and not self.files.isdisjoint(_files(found))

    def against(self, found: Diagnostic) -> Iterator[Reason]:
        """The reasons against a finding, at most one for each premise."""
        yield from self._open(found)
        if found.id == _UNRECOGNISED and self.mentions.has_programs:
            yield suppression.OF_ANOTHER
        uses = (self._use(each) for each in _files(found) if each in self.files)
        reasons = [each for each in uses if each is not None]
        yield from sorted(reasons, key=lambda each: each.error != "note")[:1]
        is_idle = found.severity == "error" and not self.mentions.is_named_by(found.file)
        told = {
            suppression.UNREACHED: not self._is_reached(found),
            suppression.ELSEWHERE: self._is_elsewhere(found),
            suppression.SET_BESIDE: self._is_set_beside(found),
            suppression.OTHER_ENGINE: self._is_given(found, "multi_gpu", below="deepspeed_config."),
            suppression.HOSTS_ELSEWHERE: found.id in _OF_HOSTS and "hostfile" in found.message,
            suppression.IDLE: self._is_idle(found),
            suppression.STARTED_OTHERWISE: found.id == _OF_ONE and self._is_shared(found),
            suppression.UNSUBMITTED: self._is_of_no_job(found),
            suppression.CUT: self._is_cut(found),
            suppression.ASIDE: _ASIDE.search(found.file) is not None
            and (is_idle or is_of_runs(found.id)),
        }
        yield from (reason for reason, is_so in told.items() if is_so)
        yield from self._of_verl(found)
        if not self.is_described:
            taken = self._unseen(found) or self._reader(found) or self._program(found)
            yield from () if taken is None else (taken,)

    def unproven(self, found: Diagnostic) -> Reason | None:
        """What is against a finding in what its rule was worth in public repositories."""
        if self.is_described or not self.mentions.has_programs:
            return None
        said = Said(found.severity == "error", found.file.endswith(PYTHON))
        return unproven(found.id, said)

    def shows_reader(self, file: str) -> bool:
        """Whether it is a command, or a command names it and the program it is taken for."""
        kinds = self._kinds.get(file, ())
        named = {*self.mentions.texts_naming(file, with_prose=True)} & {*self.mentions.commands}
        readers = [READERS[kind] for kind in kinds if kind in READERS]
        return not kinds or any(each.search(text) for each in readers for text in named)

    def _open(self, found: Diagnostic) -> Iterator[Reason]:
        """What is against the premise that the file says all of what is read."""
        if found.id == _NOT_JSON:
            yield from self._unquoted(found)
        if found.id == _MISSING:
            path = found.message.partition(" ")[0]
            if _STANDS_IN.search(path) or self._is_below_a_word(found):
                yield suppression.FILLED_IN
            yield from (suppression.KEPT_OUT,) if self.mentions.keeps_out(path) else ()

    def _unquoted(self, found: Diagnostic) -> Iterator[Reason]:
        """What is against the premise that a text was to be one document of JSON."""
        line = self.mentions.line_of(found)
        column = 0 if found.span is None else found.span.column - 1
        if _TEMPLATE.search(line):
            yield suppression.FILLED_IN
        elif found.message == TRAILING and line[column:].startswith(("{", "[")):
            yield suppression.RECORDS
        elif is_hjson(found, line):
            is_engines = self._is_of_engine or self._is_given_to_engine(found.file)
            yield from (suppression.IN_HJSON,) if is_engines else ()

    def _is_given_to_engine(self, file: str) -> bool:
        """Whether a command gives a file by the flag of `deepspeed.add_config_arguments`."""
        name = re.escape(PurePosixPath(file).name)
        flag = re.compile(rf"--deepspeed_config[ =]+[\"']?[^\s\"']*{name}")
        return any(map(flag.search, self.mentions.texts_naming(file, with_prose=True)))

    def _use(self, file: str) -> Reason | None:
        """What is against the premise that a file is used."""
        if file in self._of_tests:
            return suppression.OF_TESTS
        if self.mentions.is_of_a_copy(file):
            return suppression.OF_A_COPY
        if file.endswith(".py"):
            return None if self.mentions.is_named_by(file) else suppression.UNSTARTED
        if file not in self._kinds:
            return None
        if self.mentions.is_written(file):
            return suppression.WRITTEN
        naming = self.mentions.texts_naming(file, with_prose=True)
        if naming and all(only_prints(each, file) for each in naming):
            return suppression.PRINTED
        is_of_folder = self._kinds[file] == {EXPLAINED}  # which `dataset_dir` names
        named = "folder" if is_of_folder else self.mentions.is_named_by(file)
        if all(e in READERS and self.mentions.lacks_reader(e, file) for e in self._kinds[file]):
            return suppression.NO_READER
        if not named:
            return suppression.UNNAMED if self.mentions.has_programs else None
        return suppression.IN_TEXT if named == "text" else None

    def _reader(self, found: Diagnostic) -> Reason | None:
        """What is against the premise that the known program reads it."""
        held = None if is_code(found.id) else self._document(found)
        if held is None or is_of_engines(found.id) or not self.mentions.has_programs:
            return None
        run, document = held
        if document.format == "shell":
            programs = programs_at(run, found)
            if any(map(run.own.has_lost, programs)):
                return suppression.PROGRAM_GONE
            is_one = any(name.endswith(".py") or run.own.sources_of(name) for name in programs)
            is_known = not is_one or run.own.shows_in(programs, OF_TRAINER)
            return None if is_known else suppression.READER_TAKEN
        is_whole = document.format in _WHOLE and document.kind in _OF_PROGRAMS
        is_known = run.own.shows(PARSERS) or any(map(_TRL.search, self.mentions.commands))
        return suppression.READER_TAKEN if is_whole and not is_known else None

    def _program(self, found: Diagnostic) -> Reason | None:
        """What is against an error in the premise that the program of its command is known."""
        is_asked = found.severity == "error" and not is_code(found.id) and not is_of_shell(found.id)
        held = self._document(found) if is_asked else None
        if held is None or held[1].format != "shell" or held[1].kind not in _OF_ANY:
            return None
        own, programs = held[0].own, programs_about(held[0], found)
        if programs and all(map(own.has_lost, programs)):
            return suppression.PROGRAM_GONE
        files = [name for name in programs if name.endswith(".py") or "$" in name]
        if files and all(map(own.lacks_program, programs)):
            return suppression.PROGRAM_UNSEEN
        return suppression.TRAINER_UNSEEN if any(map(own.lacks_trainer_of, programs)) else None

    def _unseen(self, found: Diagnostic) -> Reason | None:
        """What is against a finding that says that the program which reads the file ends."""
        held = self._document(found) if is_said_to_end(found) and not is_code(found.id) else None
        is_call = any(file.endswith(PYTHON) for file in _files(found))
        is_read = is_call or self._is_for_engines(found)
        if held is None or is_read or not self.mentions.has_programs:
            return None
        run, document = held
        packages = packages_of(document.kind)
        if found.severity != "error" and document.kind != "hf" and not packages:
            return None  # a script is known by its own name
        has_copy = any(map(run.own.packs, packages))
        programs, about = programs_at(run, found), programs_about(run, found)
        started = Started(programs, run.own, about, self.mentions)
        if has_copy or not is_seen(document, started):
            return suppression.READER_UNSEEN
        is_known = found.consequence not in BY_VERSION or is_dated(rule(found.id), run)
        return None if is_known else suppression.RELEASE_UNSEEN

    def _is_for_engines(self, found: Diagnostic) -> bool:
        """Whether a finding is about what engines read, whichever program is started."""
        kinds = {e for file in _files(found) for e in self._kinds.get(file, {""})}
        return is_of_engines(found.id) or kinds <= ENGINES

    def _document(self, found: Diagnostic) -> tuple[LintContext, Document] | None:
        label = found.primary
        if label is None:
            return None
        mine = self._documents.get(found.file, ())
        return next((each for each in mine if label.path in each[1].found), None)

    def _is_set_beside(self, found: Diagnostic) -> bool:
        """Whether the commands that name a config also give the key of a finding as a flag."""
        label = found.primary
        return label is not None and self._is_given(found, label.path.rpartition(".")[2])

    def _is_given(self, found: Diagnostic, key: str, *, below: str = "") -> bool:
        """Whether the commands that name a config give a flag, for a finding below a key of it."""
        label = found.primary
        if label is None or self._kinds.get(found.file, _DEEPSPEED) == _DEEPSPEED:
            return False
        gives = re.compile(rf"--{re.sub('[-_]', '[-_]', key)}(?![\w-])")
        naming = self._naming(found.file, with_prose=found.id == _OF_ANOTHER)
        is_below = bool(naming) and label.path.startswith(below)
        return is_below and all(n <= len(gives.findall(text)) for text, n in naming)

    def _naming(self, file: str, *, with_prose: bool) -> list[tuple[str, int]]:
        """The texts that name a file, and how often."""
        if (key := (file, with_prose)) not in self._texts_naming:
            texts = self.mentions.texts_naming(file, with_prose=with_prose)
            times = ((each, times_named(file, each)) for each in texts)
            self._texts_naming[key] = [(text, n) for text, n in times if n]
        return self._texts_naming[key]

    @cached_property
    def _texts_naming(self) -> dict[tuple[str, bool], list[tuple[str, int]]]:
        return {}

    def _is_below_a_word(self, found: Diagnostic) -> bool:
        """Whether a path begins with a word that a script gives a variable of the same name."""
        documents = (each for _, each in self._documents.get(found.file, ()))
        return any(found.message.startswith(f"{e}/") for d in documents for e in placeholders(d))

    def _is_idle(self, found: Diagnostic) -> bool:
        """Whether a key of DeepSpeed's stands in a block that is switched off."""
        label, held = found.primary, self._document(found)
        if label is None or held is None or held[1].kind != "deepspeed":
            return False
        switch = f"{label.path.rpartition('.')[0]}.enabled"
        return switch != label.path and held[1].value(switch) is False

    def _is_shared(self, found: Diagnostic) -> bool:
        """Whether one script starts one process of an engine's file, and others start several."""
        files = frozenset(_files(found))
        mine = [run for run, each in self._documents.get(found.file, ()) if each.kind in ENGINES]
        starts = [each for run in mine for each in run.of("launch") if each.name not in files]
        return any(starts_several(each, is_told=len(files) == 1) for each in starts)

    def _is_cut(self, found: Diagnostic) -> bool:
        """Whether it is about flags on lines that a script's line endings do not continue."""
        if is_code(found.id) or is_of_shell(found.id) or not is_of_runs(found.id):
            return False
        return any("\\\r\n" in each.text for _, each in self._documents.get(found.file, ()))

    def _is_of_no_job(self, found: Diagnostic) -> bool:
        """Whether it rests on the directives of a script that is started as any other."""
        scripts = {*_files(found)} - self._kinds.keys() if is_of_jobs(found.id) else ()
        return any(map(self._is_started_by_path, scripts))

    def _is_started_by_path(self, file: str) -> bool:
        """Whether something names a script, or starts its folder's, and nothing submits it."""
        path = PurePosixPath(file)
        naming = self.mentions.texts_naming(file, with_prose=True)
        if naming:
            submits = re.compile(rf"\bsbatch\b[^\n]*{re.escape(path.name)}")
            return not any(map(submits.search, naming))
        starts = re.compile(rf"\bsh[ \t]+[\w./-]*\b{re.escape(path.parent.name)}/[\w.-]+\.sh\b")
        commands = self.mentions.commands
        return any(map(starts.search, commands)) and not any(map(_SUBMITS.search, commands))

    def _of_verl(self, found: Diagnostic) -> Iterator[Reason]:
        """What is against the premise that verl's known releases have the run's keys and words."""
        held = None if is_code(found.id) else self._document(found)
        if held is None or held[1].kind != "verl" or found.primary is None:
            return
        release, oldest = held[0].release("verl"), held[0].targets["verl"].releases[0]
        if release.is_before(oldest):
            yield suppression.OLDER_VERL
        elif not release.is_known and found.primary.path.rpartition(".")[2] in found.message:
            yield suppression.SOME_VERL

    def _is_elsewhere(self, found: Diagnostic) -> bool:
        """Whether two files are compared that a script names in another checkout's folder."""
        files = frozenset(_files(found))
        runs = self.runs if len(files) > 1 else ()
        mine = (each.documents for each in runs if files <= {e.name for e in each.documents})
        here = {part for root in self.mentions.roots for part in root.parts}
        return any(leaves(each, here) for documents in mine for each in documents)

    def _is_reached(self, found: Diagnostic) -> bool:
        """Whether a statement stands under no condition that no command is known to meet."""
        span = found.span
        if span is None or not span.file.endswith(".py"):
            return True
        texts = [each.text for _, each in self._documents.get(span.file, ())]
        return not texts or is_reached(texts[0], span.line, self.mentions.commands)

    @cached_property
    def _is_of_engine(self) -> bool:
        """Whether programs here give what they read to DeepSpeed itself, and none to a trainer."""
        own = (each.own for each in self.runs[:1])
        return any(each.shows(_BY_ENGINE) and not each.shows(PARSERS) for each in own)

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


_ASIDE: Final = re.compile(
    r"(?i)(?:^|/)(?:deprecated|archived?|legacy|obsolete|unused|nouse|old(?:er)?)(?:[_-]\w+)?/"
)
_NOT_JSON: Final = "E0105"
_MISSING: Final = "missing-file"
_OF_HOSTS: Final = ("nodes-without-hostfile", "device-filter-refused")
_OF_ONE: Final = "zero-of-one-process"
_SUBMITS: Final = re.compile(r"\bsbatch\b")
_OF_ANOTHER: Final = "key-of-another-tool"
_UNRECOGNISED: Final = "unrecognised-file"
_TEMPLATE: Final = re.compile(r":\s*(?:[A-Z][A-Z0-9_]+|<[^<>]+>|\{\{.*\}\}|\$\{?\w+\}?)\s*,?\s*$")
"""A value that a program puts in before the file is read."""
_BY_ENGINE: Final = re.compile(r"\bdeepspeed\.(?:initialize|add_config_arguments)\(")
_STANDS_IN: Final = re.compile(r"__[A-Z][A-Z0-9_]*__|\{\{.*?\}\}")
"""A word in a path that a program replaces."""
_OF_PROGRAMS: Final = frozenset({"hf", *TRL})
"""Kinds of config that a program of the user's own reads."""
_OF_ANY: Final = frozenset({"launch", "slurm", *_OF_PROGRAMS})
"""Kinds of what any program is started with; others are flags of one program."""
_TRL: Final = re.compile(STARTS_TRL)
"""What gives a whole file to the classes whose fields its keys are."""
_DEEPSPEED: Final = {"deepspeed"}


def _files(found: Diagnostic) -> tuple[str, ...]:
    return tuple(each.span.file for each in found.labels if each.span is not None)
