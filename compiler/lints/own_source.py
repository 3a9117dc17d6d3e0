"""The Python files of the repository around the linted files: what they declare, quote and read."""

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from tunec.compiler.frontend.disk import Unreadable, read_bytes, texts_below
from tunec.compiler.lints.repository import Reach

if TYPE_CHECKING:
    from tunec.compiler.lints.context import Missing
    from tunec.compiler.lints.document import Document

Found = TypeVar("Found")
_FIELD: Final = re.compile(
    r"(?m)^[ \t]+([A-Za-z_]\w*)[ \t]*:[ \t]*([A-Za-z_][^=\n#]*?)[ \t]*(?:=|$)"
)
"""`name: type = default` in the body of a class."""
_DEFAULT: Final = re.compile(
    r"""(?m)^[ \t]+([A-Za-z_]\w*)[ \t]*:[^=\n]*=[ \t]*"""
    r"""(?:[\w.]*\bfield\(\s*(?:default\s*=\s*)?)?"""
    r"""("[^"\n]*"|'[^'\n]*'|-?[\d.][\w.+-]*|True|False|None)\s*(?:[,)#\n]|$)"""
)
"""`name: type = default`, or `= field(default=default, ...)`, if the default is written out."""
_HEIR: Final = re.compile(
    r"class \w+\([^)]*(?:TrainingArguments|\b(?:SFT|DPO|GRPO|KTO|Reward|RLOO|GKD|PPO)Config)\s*\)"
)
"""A subclass of a trainer's own configuration."""
UNDECLARED: Final = object()
"""The default of a field that no such class declares."""
UNSETTLED: Final = object()
"""A default that is not written out, or that differs between two classes."""
_CLASS: Final = re.compile(r"(?m)^(?=[^\s#)])")
"""The beginning of an unindented statement: a class, whose body follows, or the end of one."""
_LEAST_DECLARED, _SHARE_DECLARED = 8, 0.8
"""Keys of a file, and their share, that are fields of one class."""
_FLAG: Final = re.compile(r"""["']--([A-Za-z][\w-]*)["']""")
_REGISTERS: Final = re.compile(r"""\b_?(register\w*)\(\s*(?:name\s*=\s*)?["']([^"'\n]*)["']""")
"""How Python adds a word to a table of a trainer, such as verl's of advantages."""
_WORD: Final = re.compile(r"""["']([A-Za-z][\w.-]{2,40})["']""")
_READ: Final = re.compile(
    r"""\[\s*["'](\w+)["']\s*\]|\.(?:get|pop)\(\s*["'](\w+)["']|\w*get\w*\([^,()]+,\s*["'](\w+)["']"""
    r"""|\b\w*(?:args|config|cfg|conf|params|opt|algo)\.(?!(?:get|pop)\()(\w+)""",
)
"""How a script reads a setting."""
_SET: Final = re.compile(r"\b\w*(?:args|config|cfg)\.(\w+)\s*=(?!=)")
"""How a script sets a setting itself."""
_LOADS: Final = re.compile(
    r"yaml\.(?:safe_|full_)?load\(|json\.load\(|OmegaConf\.load\(|tomllib\.load\(|toml\.load\("
)
_TRAINER_FROM: Final = re.compile(r"(?m)^[ \t]*from (\w+) import [^\n]*\bTrainer\b")
_OF_TRAINERS: Final = frozenset({"transformers", "trl", "swift", "unsloth", "optimum"})
"""Packages whose `Trainer` is that of transformers, or extends it."""
_PARSES: Final = re.compile(r"TrlParser|HfArgumentParser|H4ArgumentParser")
_IMPORTED: Final = re.compile(
    r"(?m)^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t(]+([\w, \t]*)|import[ \t]+([\w.]+))"
)
_IMPORTS_DEEP: Final = 2
_LEAST_READ, _SHARE_READ = 3, 0.5
"""Keys, and their share, that a script takes from a file which it reads itself."""
_EVERYWHERE: Final = frozenset({"none", "null", "auto", "true", "false", "default", "all", "full"})
"""Words that any script quotes for other purposes."""


class OwnSource(Struct, frozen=True, dict=True):
    """The Python files of a repository, which are read when they are needed."""

    roots: tuple[Path, ...] = ()

    def declares(self, name: str, *, as_flag: bool = False) -> bool:
        """Whether a class has a field of that name, or, for flags, a parser has it."""
        return name in self._fields or (as_flag and name.replace("-", "_") in self._flags)

    def parses(self, flag: str, programs: Iterable[str]) -> bool:
        """Whether a started program, or what it imports, adds a flag to a parser itself.

        argparse takes what a flag begins with for the flag.
        """
        begin = flag.replace("_", "[-_]")
        words = rf"add_argument\(\s*(?:[\"']-\w[\"'],\s*)?[\"']--{begin}[\w-]*[\"']"
        return self.shows_in(programs, re.compile(words))

    def takes(self, name: str) -> bool:
        """Whether any file reads a setting of that name."""
        return name in self._taken

    def sets(self, name: str) -> bool:
        """Whether any file sets a setting of that name itself."""
        return name in self._set

    def reads_itself(self, keys: Iterable[str]) -> bool:
        """Whether a script loads such a file, and takes most of these keys from it.

        A script that passes the file to an argument parser reads it as that parser does.
        """
        wanted = frozenset(keys)
        least = max(_LEAST_READ, _SHARE_READ * len(wanted))
        if any(len(wanted & each) >= least for each in self._by_loaders):
            return True
        is_alone = bool(self._by_loaders) and not self.shows(_PARSES)
        return is_alone and len(wanted & self._taken) >= least

    def declares_in_one(self, keys: Iterable[str]) -> bool:
        """Whether one class has nearly all of these keys as fields."""
        wanted = frozenset(keys)
        least = max(_LEAST_DECLARED, _SHARE_DECLARED * len(wanted))
        return any(len(wanted & each) >= least for each in self._classes)

    def makes_no(self, pattern: re.Pattern[str]) -> bool:
        """Whether its scripts load files themselves, and the pattern is in none of them."""
        return bool(self._by_loaders) and not self.shows(pattern)

    def type_of(self, name: str) -> str:
        """The annotation of a field as it is written; empty if no class has it."""
        return self._fields.get(name, "")

    def quotes(self, word: str) -> bool:
        """Whether any file quotes the word."""
        return word not in _EVERYWHERE and word in self._words

    def holds(self, text: str) -> bool:
        """Whether any file has a text."""
        return self._once(("holds", text), lambda: any(text in each for each in self._texts))

    def shows(self, pattern: re.Pattern[str]) -> bool:
        """Whether any file matches a pattern."""
        return self._once(("shows", pattern), lambda: any(map(pattern.search, self._texts)))

    def lacks(self, text: str) -> bool:
        """Whether there are files, and none has a text."""
        return bool(self._texts) and not self.holds(text)

    def registers(self, word: str, by: str = "") -> bool:
        """Whether a call registers a word: of the function `by`, or of any whose name says so."""
        return (by, word) in self._registered

    def _once(self, key: tuple[Any, ...], work: Callable[[], Found]) -> Found:
        """What work finds, which is remembered under a key."""
        if key not in self._remembered:
            self._remembered[key] = work()
        found: Found = self._remembered[key]
        return found

    @cached_property
    def _remembered(self) -> dict[tuple[Any, ...], Any]:
        return {}

    def decides(self, key: str, flags: "Document", missing: "Iterable[Missing]") -> bool:
        """Whether a program's flags leave a key to a class of the repository, or to a lost file."""
        if flags.format != "shell" or flags.is_view:
            return False
        named = (each.place for each in missing)
        is_lost = any(at.path == "config" and at.document.name == flags.name for at in named)
        return is_lost or self.declares(key)

    def default_of(self, key: str, programs: Iterable[str] = ()) -> Any:
        """The default of a field in the repository's subclasses of a trainer's configuration.

        Those in the started programs, or imported by them, take precedence.
        """
        mine = (heir for each in programs for heir in self._heirs_of(each))
        for heirs in (mine, self._heirs):
            found = [each[key] for each in heirs if key in each]
            if found:
                return found[0] if all(each == found[0] for each in found) else UNSETTLED
        return UNDECLARED

    @cached_property
    def _heirs(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(heir for text in self._texts for heir in _heirs(text))

    def _heirs_of(self, program: str) -> tuple[Mapping[str, Any], ...]:
        every = (heir for text in self.sources_of(program) for heir in _heirs(text))
        return self._once(("heirs", program), lambda: tuple(every))

    def text_of(self, program: str) -> str | None:
        """The source of a program that a command names by its path or as a module."""
        return self._once(
            ("text", program),
            lambda: next((self._files[each] for each in self._paths_of(program)), None),
        )

    def _paths_of(self, program: str) -> list[str]:
        path = program if program.endswith(".py") else f"{program.replace('.', '/')}.py"
        end = "/" + _LEFT_OUT.sub("", path)
        return [e for e in self._by_name.get(end.rpartition("/")[2], ()) if e.endswith(end)]

    def nearest(self, program: str, starter: str) -> str:
        """A program's path from the folder of the file that starts it, if several have its name."""
        beside = (PurePosixPath(starter).parent / program).as_posix()
        is_there = program.endswith(".py") and len(self._paths_of(program)) > 1
        return beside if is_there and self._paths_of(beside) else program

    def lie_together(self, program: str, file: str) -> bool:
        """Whether one folder below the projects holds a program and a file by these paths."""
        end = f"/{program}"
        folders = (Path(each.removesuffix(end)) for each in self._files if each.endswith(end))
        return any(folder not in self.roots and (folder / file).is_file() for folder in folders)

    def sources_of(self, program: str) -> tuple[str, ...]:
        """The source of a program, and of the repository's modules that it imports; none: empty."""
        return self._once(("sources", program), lambda: tuple(self._with_imports(program)))

    def _with_imports(self, program: str) -> Iterator[str]:
        found = dict.fromkeys(self._paths_of(program)[:1])
        waiting = list(found)
        for _ in range(_IMPORTS_DEEP):
            new = dict.fromkeys(sorted({at for by in waiting for at in self._imported(by)}))
            waiting = [each for each in new if each not in found]
            found |= new
        yield from (self._files[each] for each in found)

    def _imported(self, path: str) -> Iterator[str]:
        """The repository's modules that a file imports: of equal names, the one nearest to it."""
        for name in {*_modules(self._files[path])}:
            if of_name := self._paths_of(name):
                yield max(of_name, key=lambda each: len(os.path.commonpath((each, path))))

    def shows_in(self, programs: Iterable[str], pattern: re.Pattern[str]) -> bool:
        """Whether a program, or what it imports, matches a pattern."""
        return any(self._shows_in(each, pattern) for each in programs)

    def _shows_in(self, program: str, pattern: re.Pattern[str]) -> bool:
        texts = self.sources_of(program)
        return self._once(("in", program, pattern), lambda: any(map(pattern.search, texts)))

    @cached_property
    def every_text(self) -> str:
        """The text of all its files, concatenated."""
        return "\n".join(self._texts)

    def lacks_program(self, program: str) -> bool:
        """Whether there are files, and the program is not among them."""
        return bool(self._files) and self.text_of(program) is None

    def has_lost(self, program: str) -> bool:
        """Whether a program is not here any more: its folder is, and has other files."""
        folder = PurePosixPath(program).parent.as_posix()
        is_path = program.endswith(".py") and not program.startswith(("/", "~")) and folder != "."
        return is_path and self.lacks_program(program) and self.has_folder(folder)

    def lacks_trainer_of(self, program: str) -> bool:
        """Whether a program takes its `Trainer` from a module that is not here."""
        taken = {e for text in self.sources_of(program) for e in _TRAINER_FROM.findall(text)}
        return any(map(self.lacks_program, taken - _OF_TRAINERS))

    def is_imported_by(self, file: str, pattern: re.Pattern[str]) -> bool:
        """Whether a file that matches a pattern imports the module that another file is."""
        path = Path(file).resolve().as_posix()
        programs = (each for each, text in self._files.items() if pattern.search(text))
        return any(path in self._imported(each) for each in programs if each != path)

    def has_folder(self, folder: str) -> bool:
        """Whether some file lies below a folder of that path."""
        within = f"/{_LEFT_OUT.sub('', folder)}/"
        return any(within in each for each in self._files)

    def packs(self, package: str) -> bool:
        """Whether it contains the source of a package; substitutes in tests do not count."""
        end = f"/{package}/__init__.py"
        return any(each.endswith(end) and "/tests/" not in each for each in self._files)

    def is_release_of(self, package: str) -> bool:
        """Whether it is an unpacked source distribution of a package: the release, not a copy."""
        return f"Name: {package}" in self._distributed

    @cached_property
    def _distributed(self) -> frozenset[str]:
        """The lines of PKG-INFO at the top of each project, which source distributions have."""
        found = set[str]()
        for root in self.roots:
            with suppress(Unreadable):
                found |= {*read_bytes(root / "PKG-INFO").decode("utf-8", "replace").splitlines()}
        return frozenset(found)

    @cached_property
    def readme(self) -> str:
        """The text of the README at the top of each project."""
        found = []
        for root in self.roots:
            with suppress(Unreadable):
                found.append(read_bytes(root / "README.md").decode("utf-8", "replace"))
        return "\n".join(found)

    @cached_property
    def _files(self) -> dict[str, str]:
        return {path: text for root in self.roots for path, text in texts_below(root, (".py",))}

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        """The paths of files by their names."""
        found: dict[str, list[str]] = {}
        for each in self._files:
            found.setdefault(each.rpartition("/")[2], []).append(each)
        return found

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(self._files.values())

    @cached_property
    def _registered(self) -> frozenset[tuple[str, str]]:
        """Functions that register something, each with the first word it is given."""
        calls = [each.groups() for text in self._texts for each in _REGISTERS.finditer(text)]
        return frozenset((by, word) for name, word in calls for by in ("", name))

    @cached_property
    def _taken(self) -> frozenset[str]:
        return frozenset(name for text in self._texts for name in _taken_in(text))

    @cached_property
    def _set(self) -> frozenset[str]:
        return frozenset(each[1] for text in self._texts for each in _SET.finditer(text))

    @cached_property
    def _by_loaders(self) -> tuple[frozenset[str], ...]:
        """The keys that each script takes if it loads files without a trainer's parser."""
        texts = (text for text in self._texts if _LOADS.search(text) and not _PARSES.search(text))
        return tuple(frozenset(_taken_in(text)) for text in texts)

    @cached_property
    def _fields(self) -> dict[str, str]:
        return {each[1]: each[2] for text in self._texts for each in _FIELD.finditer(text)}

    @cached_property
    def _classes(self) -> tuple[frozenset[str], ...]:
        bodies = (body for text in self._texts for body in _CLASS.split(text)[1:])
        return tuple(frozenset(each[1] for each in _FIELD.finditer(body)) for body in bodies)

    @cached_property
    def _flags(self) -> frozenset[str]:
        found = (each[1] for text in self._texts for each in _FLAG.finditer(text))
        return frozenset(name.replace("-", "_") for name in found)

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(each[1] for text in self._texts for each in _WORD.finditer(text))


def _heirs(text: str) -> tuple[Mapping[str, Any], ...]:
    """The fields of each class of a file that extends a trainer's configuration."""
    if "TrainingArg" not in text and "Config" not in text:
        return ()
    bodies = [each for each in _CLASS.split(text) if _HEIR.match(each)]
    return tuple(
        {each[1]: UNSETTLED for each in _FIELD.finditer(body)}
        | {each[1]: _literal(each[2]) for each in _DEFAULT.finditer(body)}
        for body in bodies
    )


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return UNSETTLED


def _modules(text: str) -> Iterator[str]:
    """What a text imports, and what may be modules of a package that it imports from."""
    for package, names, module in _IMPORTED.findall(text):
        within = (package or module).lstrip(".")
        yield within
        for each in re.findall(r"\w+", names):
            yield f"{within}.{each}".lstrip(".")


def _taken_in(text: str) -> Iterator[str]:
    found = (group for each in _READ.finditer(text) for group in each.groups())
    return (group for group in found if group)


def own_source(files: Iterable[Path], reach: Reach) -> OwnSource:
    """The source of the projects that contain some files."""
    roots = (reach.root_of(each) for each in files)
    return OwnSource(tuple(dict.fromkeys(root for root in roots if root is not None)))


_LEFT_OUT: Final = re.compile(r"\A(?:\.{0,2}/|[^/]*[$\0][^/]*/)+")
"""Prefixes of paths that are ignored: `../`, a variable."""
