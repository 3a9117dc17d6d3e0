"""What a repository's texts say of a file: which name it or write it, and what starts its reader.

What a repository holds has mostly run. So a finding that says that the program which reads a file
refuses it says more often that another program reads it, or another release: of such errors in
public repositories three in ten were true at first sight, of errors about what runs on otherwise
seven, and of warnings four and seven (docs/false-alarms.md). Both need what shows the program
itself: a command starts the distribution's own, and no copy of it lies in the repository; the file
is one that no other program reads; or the repository's own program gives what it reads to the
trainer's classes, and trains by one of the trainer's.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.disk import Unreadable, read_bytes, texts_below
from tunec.compiler.frontend.notebook import is_notebook, without_results
from tunec.compiler.frontend.shell_words import BATCH_ENDINGS
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.own_source import OwnSource
from tunec.compiler.lints.repository import copy_of, is_top

_SCRIPTS: Final = (".sh", ".bash", *BATCH_ENDINGS)
_PROGRAMS: Final = (".py", *_SCRIPTS, ".ipynb", ".bat", "Makefile", "Dockerfile")
_ENDINGS: Final = (
    *_PROGRAMS,
    *(".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".env", ".md", ".rst", ".txt", "justfile"),
)
PYTHON: Final = (".py", ".ipynb")
_NO_COMMANDS: Final = (".py", ".json", ".toml", ".cfg", ".ini")
_OF_TRANSFORMERS: Final = r"transformers|\btrl\b|(?i:unsloth)"
READERS: Final[Mapping[str, re.Pattern[str]]] = {
    kind: re.compile(words)
    for kind, words in {
        **{kind: f"(?i:{kind})" for kind in TRL},
        **dict.fromkeys(("hf", "sft"), _OF_TRANSFORMERS),
        "accelerate": "accelerate",
        "ai-toolkit": "(?i:ai-toolkit|ostris)",
        "axolotl": "(?i:axolotl)",
        "deepspeed": "(?i:deepspeed)",
        "glm4": "(?i:glm)",
        "llamafactory": "(?i:llama.?factory|llmtuner)",
        "ms-swift": r"ms-?swift|\bswift\.(?:cli|llm)\b|\bswift (?:sft|pt|rlhf|export|infer)\b"
        r"|(?:from|import) swift\b",
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
        named = self._naming(file)
        if not is_top(copy, self.roots):
            return all(path.startswith(f"{copy.as_posix()}/") for path in named)
        starting = (path for path in named if _is_program(path) and not path.endswith(PYTHON))
        return all(copy_of(Path(path), self.roots) == copy for path in starting)

    def line_of(self, found: Diagnostic) -> str:
        """The line at which a finding begins."""
        span = found.span
        if span is None:
            return ""
        path = Path(span.file).resolve().as_posix()
        text = next((text for each, text in self.whole if each == path), "")
        lines = text.splitlines()
        return lines[span.line - 1] if span.line <= len(lines) else ""

    def is_written(self, file: str) -> bool:
        """Whether a script beside a file redirects text into it, by its name or by a variable's."""
        folder = Path(file).resolve().parent.as_posix()
        scripts = [each for each in self._texts if each[0].endswith(_SCRIPTS)]
        beside = (text for path, text in scripts if path.rpartition("/")[0] == folder)
        return any(writes(text, file) for text in beside)

    def texts_naming(self, file: str, *, with_prose: bool) -> list[str]:
        """The texts of programs that have the name of a file, and if asked those of a README."""
        paths = {each for each in self._naming(file) if with_prose or _is_program(each)}
        return [text for path, text in self._texts if path in paths]

    def is_loaded(self, file: str) -> bool:
        """Whether a Python program has the name of a file, and may change what it loads."""
        return any(path.endswith(PYTHON) for path in self._naming(file))

    def _naming(self, file: str) -> tuple[str, ...]:
        """The paths of other files that name it."""
        if file not in self._paths_naming:
            self._paths_naming[file] = tuple(self._search(file))
        return self._paths_naming[file]

    def _search(self, file: str) -> Iterator[str]:
        own, name = Path(file).resolve().as_posix(), PurePosixPath(file)
        begun = "|".join(re.escape(name.name[:n]) for n in range(_LEAST_BEGUN, len(name.name)))
        built = rf"|(?<![\w.-])(?:{begun}){_BUILT}" if begun else ""
        stem = rf"""(?<=["'/]){re.escape(name.stem)}["']"""
        pattern = re.compile(rf"(?<![\w-]){re.escape(name.name)}(?!\w)|{stem}{built}")
        hint = name.stem[:_LEAST_BEGUN]  # with which whatever the pattern finds begins
        namesakes = [path for path, _ in self._texts if path.endswith(f"/{name.name}")]
        for path, text in self._texts:
            found = _at_each(hint, text, pattern) if path != own else iter(())
            folders = (_folders(text[_around(each)], path) for each in found)
            if any(_is_nearest(own, namesakes, each) for each in folders):
                yield path

    def keeps_out(self, path: str) -> bool:
        """Whether a line of a project's .gitignore keeps a file of that path out of it."""
        parts = PurePosixPath(path).parts
        return any(fnmatchcase(part, line) for line in self._kept_out for part in (path, *parts))

    @cached_property
    def _kept_out(self) -> tuple[str, ...]:
        """The lines of each project's .gitignore that are names, without the folders' slash."""
        lines = list[str]()
        for root in self.roots:
            with suppress(Unreadable):
                text = read_bytes(root / ".gitignore").decode("utf-8", "replace")
                lines += (each.strip().strip("/") for each in text.splitlines())
        return tuple(each for each in lines if each and each[0] not in "#!" and each != "*")

    def lacks_reader(self, kind: str, file: str) -> bool:
        """Whether there are Python programs, and nothing names the one that reads such a file."""
        if kind not in self._readers:
            words = READERS[kind]
            self._readers[kind] = {path for path, text in self._texts if words.search(text)}
        has_programs = any(path.endswith(PYTHON) for path, _ in self._texts)
        return has_programs and self._readers[kind] <= {Path(file).resolve().as_posix()}

    @cached_property
    def _readers(self) -> dict[str, set[str]]:
        return {}

    @cached_property
    def commands(self) -> tuple[str, ...]:
        """The texts in which commands stand."""
        return tuple(text for path, text in self._texts if not path.endswith(_NO_COMMANDS))

    def starts(self, kind: str, file: str) -> bool:
        """Whether a command starts the distribution's own program with a file of a kind."""
        if kind not in self._started_with:
            self._started_with[kind] = frozenset(_names_started(kind, self.commands))
        return PurePosixPath(file).name in self._started_with[kind]

    @cached_property
    def _started_with(self) -> dict[str, frozenset[str]]:
        return {}

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
        return tuple((path, without_remarks(path, text)) for path, text in self.whole)

    @cached_property
    def whole(self) -> tuple[tuple[str, str], ...]:
        """The texts by path, with their comments."""
        every = (each for root in self.roots for each in texts_below(root, _ENDINGS))
        return tuple({path: text for path, text in every if _BUILT_IN not in path}.items())


REMARK: Final = re.compile(r"""(?m)^[ \t]*"?#(?!!).*$""")
_WITHOUT_REMARKS: Final = (".json", ".md", ".rst", ".txt", ".toml")


def without_remarks(path: str, text: str) -> str:
    """A text without comment lines and a notebook's results, whose mentions do not count as use."""
    said = without_results(text) if is_notebook(path) else text
    return said if path.endswith(_WITHOUT_REMARKS) else REMARK.sub("", said)


def _at_each(word: str, text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """What a pattern matches where a word stands, with which all that it matches begins."""
    at = text.find(word)
    while at >= 0:
        if found := pattern.match(text, at):
            yield found
        at = text.find(word, at + 1)


_FOLDER: Final = re.compile(r"[\w.{}$*/~-]*/\Z")
_LONGEST_PATH: Final = 300


def _around(name: re.Match[str]) -> slice:
    """Where the folders of a name may stand."""
    return slice(max(0, name.start() - _LONGEST_PATH), name.start())


def _folders(before: str, by: str) -> Sequence[str]:
    """The folders that stand before a name, the nearest first; else those of the text itself."""
    said = _FOLDER.search(before)
    return PurePosixPath(said[0]).parts[::-1] if said else PurePosixPath(by).parent.parts[::-1]


def _is_nearest(file: str, namesakes: Sequence[str], folders: Sequence[str]) -> bool:
    """Whether no other file of the name lies further in the folders that are said before it."""
    depths = (_depth(each, folders) for each in namesakes)
    return _depth(file, folders) >= max(depths, default=0)


def _depth(file: str, folders: Sequence[str]) -> int:
    pairs = zip(folders, PurePosixPath(file).parent.parts[::-1], strict=False)
    is_so = (said == folder or re.search(_BUILT, said) is not None for said, folder in pairs)
    return sum(takewhile(bool, is_so))


_REDIRECTED: Final = re.compile(r"(?<![0-9&>=-])>[ \t]*[\"']?([^\s\"'|&;<>]+)")
_VARIABLE: Final = re.compile(r"\$\{?(\w+)\}?")
_TO_TEXT: Final = re.compile(r"(?m)^[ \t]*python3? -[ \t]+([^\n#]*?)<<")
"""The arguments of a program that stands in the script itself."""


def writes(script: str, file: str, *, is_missing: bool = False) -> bool:
    """Whether a script redirects text into a file: by its name, which variables may be part of.

    A program within the script may write it too, if it gets the file's name and the file is
    missing.
    """
    name = PurePosixPath(file).name
    given = _TO_TEXT.findall(script) if is_missing else ()
    words = (word.strip("\"'") for each in given for word in each.split())
    for word in (*_REDIRECTED.findall(script), *words):
        held = _VARIABLE.fullmatch(word)
        assigned = rf"(?m)^[ \t]*{held[1]}=[\"']?([^\s\"']+)" if held else ""
        for each in re.findall(assigned, script) if held else [word]:
            parts = _VARIABLE.sub("\0", PurePosixPath(each).name).split("\0")
            if any(parts) and re.fullmatch(".*".join(map(re.escape, parts)), name):
                return True
    return False


def only_prints(program: str, file: str) -> bool:
    """Whether a program only prints what a file holds, or does nothing with the file's name."""
    name = re.escape(PurePosixPath(file).name)
    code = re.sub(r"(?m)^[ \t]*#.*", "", program)
    held = re.search(rf"(?m)^[ \t]+(\w+) = [^\n]*(?<![\w-]){name}(?!\w)", code)
    if held is not None and len(re.findall(name, code)) == 1:
        return len(re.findall(rf"\b{held[1]}\b", code)) == 1
    loaded = re.search(rf"open\([^\n]*{name}[^\n]*\n?[^\n]*?\b(\w+) *= *json\.load\(", program)
    if loaded is None or len(re.findall(name, program)) > 1:
        return False
    rest = program.replace(loaded[0], "")
    used = [each for each in rest.splitlines() if re.search(rf"\b{loaded[1]}\b", each)]
    return all(each.lstrip().startswith("print(") for each in used)


def is_same(name: str, word: str) -> bool:
    """Whether a word says only what it stands for: `MODEL_PATH=model-path`."""
    return re.sub("[-_]", "", name).lower() == re.sub("[-_]", "", word).lower()


def times_named(file: str, text: str) -> int:
    """How often a text names a file, by as much of its path as the text says anywhere."""
    parts = PurePosixPath(file).parts
    ends = ("/".join(parts[at:]) for at in range(len(parts)))
    named = (re.findall(rf"(?<![\w-]){re.escape(end)}(?!\w)", text) for end in ends)
    return next((len(each) for each in named if each), 0)


def _is_program(path: str) -> bool:
    return path.endswith(_PROGRAMS)


# ── what ends a run, and what is seen of it ─────────────────────────────────────────────────────
ENDS: Final = frozenset({"parse", "load", "init", "step", "resume"})
"""Consequences that end a run, at once or where it first comes to them."""
_OF_ITS_OWN: Final = frozenset({"axolotl", "simpletuner"})
"""Kinds of file that only the program itself reads: its keys are no class's that others fill."""
_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "axolotl": ("axolotl",),
    "llamafactory": ("llamafactory", "llmtuner"),
    "ms-swift": ("swift",),
    "openrlhf": ("openrlhf",),
    "simpletuner": ("simpletuner",),
    "verl": ("verl",),
    **dict.fromkeys(TRL, ("trl",)),
}
"""The packages whose copy may read a file of a kind otherwise."""
STARTS_TRL: Final = r"\btrl(?:\s+|[./]scripts[./])(?:sft|dpo|kto|grpo|reward|rloo)(?:\.py)?\b"
"""TRL's own scripts: by its command, as modules, or as files of a checkout."""
_STARTS: Final[Mapping[str, str]] = {
    "llamafactory": r"\b(?:llamafactory-cli|lmf)\s+train\b",
    "ms-swift": r"\bswift\s+(?:sft|pt|rlhf)\b",
    "openrlhf": r"-m\s+openrlhf\.cli\.",
    "torchtune": r"\btune\s+run\b",
    "verl": r"-m\s+verl\.trainer\.",
    **dict.fromkeys(TRL, STARTS_TRL),
}
"""How a command starts the distribution's own program with a file of a kind."""
PARSERS: Final = re.compile(r"\b(?:HfArgumentParser|TrlParser|H4ArgumentParser)\b")
_TRAINS: Final = re.compile(
    r"(?s)from (?:transformers|trl)[\w.]* import (?:\([^)]*|[^\n(]*)\b\w*Trainer\b"
    r"|\b(?:transformers|trl)\.\w*Trainer\b"
)
"""What gives all that it reads to classes, and a trainer that is not the repository's own."""
_REST: Final = r"(?:[^\n]|\\\n)*"
"""The rest of a command, over lines that are continued."""
_NAME: Final = re.compile(r"[\w.-]*\w")


def _names_started(kind: str, commands: Sequence[str]) -> Iterator[str]:
    """The names in the commands that start the distribution's own program for files of a kind."""
    if kind in _STARTS:
        command = re.compile(_STARTS[kind] + _REST)
        for found in (each for text in commands for each in command.finditer(text)):
            yield from _NAME.findall(found[0])


def is_said_to_end(found: Diagnostic) -> bool:
    """Whether a finding says that the program which reads the file ends; a lost file ends any."""
    return found.id != "missing-file" and found.consequence in ENDS


class Started(Struct, frozen=True):
    """What a repository starts."""

    programs: Sequence[str]
    """Those that the command of a finding starts, by their paths or names."""
    own: OwnSource
    about: Sequence[str]
    """The programs that a finding is about: those, or for a file all of its run."""
    mentions: Mentions


def is_seen(document: Document, started: Started) -> bool:
    """Whether the program that reads a document is seen."""
    if document.kind in _OF_ITS_OWN:
        return not started.mentions.is_loaded(document.name)
    if all(started.own.shows_in(started.about, each) for each in (PARSERS, _TRAINS)):
        return True
    if document.format == "shell":
        return not any(each.endswith(".py") for each in started.programs)
    if document.kind in TRL and started.own.shows(PARSERS):
        return True
    return started.mentions.starts(document.kind, document.name)


def packages_of(kind: str) -> tuple[str, ...]:
    """The packages whose copy in a repository may read a file of a kind otherwise."""
    return _PACKAGES.get(kind, ())
