"""Environment variables that do not reach the run."""

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Final

from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.frontend.notebook import is_notebook
from tunec.compiler.frontend.shell_words import Command, Word
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import COMMANDS, count, flags, hostfiles, launches
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace
from tunec.targets.launch.flags import KNOWN, is_read_by_programs
from tunec.targets.launch.lines import ASSIGNED, at_line, at_offset, commands_of, lines, scripts

_TAKEN: Final = ("MLFLOW", "PYTHON", "MV2", "UCX", "NCCL")
"""Prefixes of the variables that it exports on every node."""
_OWN: Final = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""Variables that it sets itself, or that concern the devices of one node."""
_OTHERWISE: Final = ("flags.no_ssh", "flags.no_ssh_check")


@rule(
    "warning",
    "silent",
    consumers=("deepspeed",),
    reads=("launch:hostfile", *flags("num_nodes", "hostfile")),
)
def variable_left_behind(run: LintContext) -> Iterator[Finding]:
    """The deepspeed launcher does not pass a variable on to the nodes."""
    for document in launches(run, "deepspeed"):
        hosts = _hosts(run, document)
        by_slurm = str(document.value("flags.launcher", "pdsh")).lower() == "slurm"
        if hosts is None or by_slurm or any(document.get(key) for key in _OTHERWISE):
            continue
        for path, place in document.found.items():
            holder, _, name = path.partition(".")
            if holder == "environment" and _stays(name):
                yield _left_finding(name, place, hosts)


def _stays(name: str) -> bool:
    return is_read_by_programs(name) and not name.startswith(_TAKEN) and name not in _OWN


def _hosts(run: LintContext, document: Document) -> Place | None:
    """The flag by which the command starts several nodes."""
    nodes = document.get("flags.num_nodes")
    if nodes is not None:
        return nodes if (count(nodes) or 0) > 1 else None
    several = any(len(entries) > 1 for _, entries in hostfiles(run))
    return document.get("flags.hostfile") or document.get("hostfile") if several else None


def _left_finding(name: str, place: Place, hosts: Place) -> Finding:
    return Finding(
        f"{name} is set for the launcher, and not for the processes that it starts",
        (
            place.label("stays here"),
            hosts.label("reached by ssh, this node included", primary=False),
        ),
        (f"it exports names that begin with {', '.join(_TAKEN)}, and those of .deepspeed_env",),
        f"write {name}={place.value} into .deepspeed_env, beside the script or in the home folder",
    )


_VARIABLES_LIKE: Final = 0.93
_OF_OTHERS: Final = ("HCCL_", "RCCL_", "ACCL_", "MCCL_", "CNCL_", "BKCL_")
"""Prefixes of other devices' libraries, whose variables resemble NCCL's (Ascend/pytorch 2.1 docs:
HCCL_ASYNC_ERROR_HANDLING)."""


@rule("error", "silent", consumers=("torch", "nccl"), reads=("launch:environment",))
def variable_misspelt(run: LintContext) -> Iterator[Finding]:
    """The name of an environment variable is nearly one that programs read."""
    seen = set[tuple[str, str]]()
    for document in launches(run):
        for key, place in document.found.items():
            holder, _, name = key.partition(".")
            if holder != "environment" or not name or (document.name, name) in seen:
                continue
            if name in _NOBODY_S and (document.name, name) not in seen:
                seen.add((document.name, name))
                yield _of_nobody(place, name)
            near = _variables_near(name)
            if near is None:
                continue
            seen.add((document.name, name))
            yield Finding(
                f"no program reads {name}",
                (place.key_label("not a variable that is read"),),
                (),
                f"did you mean {near}?",
                severity="note" if _TO_DEBUG.search(near) else None,
            )


_TO_DEBUG: Final = re.compile(r"DEBUG|LAUNCH_BLOCKING|STACKTRACE|CUDA_DSA|VERBOSITY|LOG_LEVEL")
"""Variables that show more of a run, and change nothing in it."""
_NOBODY_S: Final[Mapping[str, str]] = {"NCCL_TIMEOUT": "give the trainer --ddp_timeout, in seconds"}
"""Variables that neither NCCL nor torch reads, though users set them; a script may read them
itself."""


def _of_nobody(place: Place, name: str) -> Finding:
    return Finding(
        f"neither NCCL nor torch reads {name}",
        (place.key_label("not a variable that is read"),),
        ("the timeout of collectives is set where the process group is created: 30 minutes",),
        _NOBODY_S[name],
        severity="warning",
    )


def _variables_near(name: str) -> str | None:
    if name in KNOWN or not name.isupper() or name.startswith(_OF_OTHERS):
        return None
    for each in nearest(name, KNOWN)[:1]:
        if SequenceMatcher(None, name, each).ratio() >= _VARIABLES_LIKE:
            return each
    return None


_EXPORTS_ALL: Final = re.compile(r"^\s*set\s+(-a|-o\s+allexport)\b", re.MULTILINE)
_EXPANDED: Final = re.compile(r"\$\{?(\w+)")
_DECLARING: Final = ("export", "declare", "typeset", "local")


_DEFAULTS: Final = ("WANDB_MODE=online",)
"""Defaults of programs without the variable: wandb 0.31.0 sdk/wandb_settings.py `mode`."""


@rule("warning", "silent", consumers=("bash",), reads=COMMANDS)
def variable_not_exported(run: LintContext) -> Iterator[Finding]:
    """A variable that programs read is set only in the shell."""
    for document in scripts(run):
        if _EXPORTS_ALL.search(document.text):
            continue
        used = {each[1] for each in _EXPANDED.finditer(document.text)}
        own = _COUNTED if document.value("launcher") in _STARTERS else frozenset[str]()
        for word, name in _held_back(document):
            is_inherited = name.startswith("ACCELERATE_")  # of the job that starts the script
            is_read = is_read_by_programs(name) or name in own
            is_default = word.written.text in _DEFAULTS or word.written.text == f"{name}="
            if is_read and not (name in used or is_inherited or is_default):
                yield _exported_finding(document, word, name)


_STARTERS: Final = ("ms-swift", "llamafactory")
_COUNTED: Final = frozenset({"NPROC_PER_NODE", "NNODES"})
"""Variables by which they start torchrun: ms-swift 4.6.0 cli/main.py `use_torchrun`, llamafactory
0.9.5 launcher.py."""


def _held_back(document: Document) -> Iterator[tuple[Word, str]]:
    """Variables that a command sets in the shell, and that no command exports."""
    found = commands_of(document)
    exported = {name for each in found for name in _exported(each)}
    for command in found:
        names = [_name(word) for word in command.words]
        for word, name in zip(command.words, names, strict=True):
            if None not in names and name is not None and name not in exported:
                yield word, name


def _exported(command: Command) -> Iterator[str]:
    if not command.words or command.words[0].written.text not in _DECLARING:
        return
    for word in command.words[1:]:
        yield _name(word) or word.written.text


def _name(word: Word) -> str | None:
    found = ASSIGNED.match(word.written.text)
    return None if found is None else found[1]


def _exported_finding(document: Document, word: Word, name: str) -> Finding:
    return Finding(
        f"{name} is set for the shell only: no program that the script starts sees it",
        (replace(at_offset(document, word.written.at[0], len(name), "not exported"), path=name),),
        ("it holds for programs only where the caller's own environment already has the variable",),
        f"write export {name}=..., or put it on the line of the command",
    )


_EXPORTED: Final = re.compile(r"\s*export\s+([A-Z][A-Z0-9_]*)=")
_NOTHING: Final = re.compile(r"\s*(?:#.*|(?:export\s+)?\w+=\S*|(?:echo|date|wait)\b.*|)")


@rule("error", "silent", consumers=("torch", "nccl"), reads=COMMANDS)
def variable_set_too_late(run: LintContext) -> Iterator[Finding]:
    """An environment variable is exported after the last run of the script."""
    for document in scripts(run):
        last = max(_lines_of_runs(run, document), default=0)
        seen = set[str]()
        for number, line in lines(document):
            found = _EXPORTED.match(line)
            if found is None or not is_read_by_programs(found[1]):
                continue
            is_new = found[1] not in seen and f"{found[1]}=" not in _until(document, last)
            if number > last > 0 and is_new and _starts_nothing(document, number):
                yield Finding(
                    f"{found[1]} is exported after the run that it is for",
                    (at_line(document, number, found.start(1), len(found[1]), "too late"),),
                    ("a program is given the variables that are set when it is started",),
                    "move the line above the command",
                )
            seen.add(found[1])


def _lines_of_runs(run: LintContext, document: Document) -> Iterator[int]:
    for each in run.of("launch"):
        at = each.get("script") or each.get("launcher")
        if each.name == document.name and at is not None:
            yield at.span.end_line


def _starts_nothing(document: Document, number: int) -> bool:
    """Whether no command follows; one might start a run by a variable."""
    return all(_NOTHING.fullmatch(each) for each in document.text.split("\n")[number:])


def _until(document: Document, last: int) -> str:
    return "\n".join(document.text.split("\n")[:last])


_SET: Final = re.compile(r"(?:^|[\s;({])([A-Za-z_]\w*)(?:\[\w*\])?\+?=", re.MULTILINE)
_LOOPED: Final = re.compile(r"\b(?:for|select)\s+([A-Za-z_]\w*)\b")
_NAMED: Final = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
"""A variable in any form: `$A`, `${A[@]}`, `${A:-otherwise}`."""
_USED: Final = re.compile(r"(?<!\\)\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
"""A variable that is replaced by its value, without a default."""
_GUARDED: Final = re.compile(r"\$\{([A-Za-z_]\w*):?[-+=?]")
"""A variable that may be unset: `${A:-otherwise}`, `${A:+if set}`."""
_ELSEWHERE: Final = re.compile(
    r"^\s*(?:source|\.)\s|\beval\b|\bread\b|\bgetopts\b|\bdeclare\b|\bmapfile\b", re.MULTILINE
)
_DIGITS: Final = re.compile(r"\d")
"""Digits; names that differ only in these are different variables."""
_SCRIPT_LIKE: Final = 0.85


@rule("warning", "parse", consumers=("bash",), reads=COMMANDS)
def script_variable_misspelt(run: LintContext) -> Iterator[Finding]:
    """A script sets a variable under one name and uses it under a similar one."""
    for document in scripts(run):
        # what a cell of a notebook starts has the variables of its Python
        if not is_notebook(document.name) and _ELSEWHERE.search(document.text) is None:
            yield from _misspelt(document)


def _misspelt(document: Document) -> Iterator[Finding]:
    """Names that are never set, each with a similar one that is never used."""
    assigned = {*_SET.findall(document.text), *_LOOPED.findall(document.text)}
    assigned |= {*_GUARDED.findall(document.text)}
    used = [(found, found[1] or found[2]) for found in _USED.finditer(document.text)]
    idle = assigned - set(_NAMED.findall(document.text)) - KNOWN
    seen = set[str]()
    for found, name in used:
        near = (
            _script_near(name, idle) if name not in assigned and name not in KNOWN | seen else None
        )
        if near is not None:
            seen.add(name)
            yield Finding(
                f"${name} is not set, and {near} is not used",
                (at_offset(document, found.start(), len(found[0]), "nothing"),),
                ("it expands to nothing: the flag before it takes the next word, or none",),
                f"did you mean ${near}?",
                severity="note" if _is_printed(document.text, name) else None,
            )


def _is_printed(text: str, name: str) -> bool:
    """Whether each line that uses a variable only prints it."""
    lines = (each for each in text.splitlines() if re.search(rf"\$\{{?{name}\b", each))
    return all(_PRINTS.match(each) for each in lines)


_PRINTS: Final = re.compile(r"\s*(?:echo|printf)\b(?!.*[|;&]\s*\w)")


def _script_near(name: str, idle: set[str]) -> str | None:
    for each in nearest(name, sorted(idle))[:1]:
        are_alike = SequenceMatcher(None, name.lower(), each.lower()).ratio() >= _SCRIPT_LIKE
        if are_alike and _DIGITS.sub("", name) != _DIGITS.sub("", each):
            return each
    return None
