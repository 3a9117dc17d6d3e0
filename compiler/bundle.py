"""bundle: the files of one run in one directory, with paths that fit each other and one entry.

Each target's files are in a folder named after the target. The files that start a run work in the
directory itself.
"""

import os
import posixpath
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.emit import Emitted
from tunec.compiler.entry import again, entry, prepared, searched
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.ir.plan import Plan
from tunec.compiler.local_paths import View, placed
from tunec.compiler.python_releases import pythons, spelled
from tunec.compiler.rendering import artifact
from tunec.compiler.requirements import Asked
from tunec.compiler.start_commands import PACKAGES, UNNAMED, Start
from tunec.compiler.target import Artifact, File, Json, Target
from tunec.schemas.dotted_paths import value_at
from tunec.schemas.spec import Spec
from tunec.schemas.torch_builds import BUILD_TOOLS, BUILT_ON_TORCH, wheel

Artifacts = Mapping[str, tuple[Artifact, ...]]
"""The files of each target, by the target's name."""


class Outset(Struct, frozen=True):
    """The place from which a bundle is made."""

    spec: str
    """The spec's directory relative to the bundle's root, with slashes."""
    starter: Asked
    """The target that starts a program on this machine, used if no requested target starts one."""


class Bundle(Struct, frozen=True):
    """Files that refer to each other by path, the entry that starts them, and diagnostics."""

    artifacts: Artifacts
    run: Artifact | None
    packages: Artifact | None
    """The requirements file; None if the entry installs the packages itself."""
    diagnostics: tuple[Diagnostic, ...]


LAUNCH: Final = "launch"
"""The target that starts a program on the machine itself."""


def outset(loaded: Loaded, root: Path, starter: Asked) -> Outset:
    """The outset of a bundle in the directory `root`, which need not exist yet."""
    spec = os.path.relpath(os.path.realpath(loaded.base), os.path.realpath(root))
    return Outset(Path(spec).as_posix(), starter)


# ── what there will be ───────────────────────────────────────────────────────────────────────────


def has_program(asked: Sequence[Asked], spec: Spec) -> bool:
    """Whether there is a program to start: the user's script, or a trainer's own."""
    own = any(target.entry or target.command for target, _ in asked)
    return own or spec.run.script is not None


def completed(asked: Sequence[Asked], plan: Plan, spec: Spec, starter: Asked) -> tuple[Asked, ...]:
    """The targets, with `starter` added if none of them starts a program here."""
    if not has_program(asked, spec) or _ways(asked, plan):
        return tuple(asked)
    return (*asked, starter)


def paths(asked: Sequence[Asked], plan: Plan) -> frozenset[str]:
    """The paths of a plan's files in its bundle."""
    every = ((target, file) for target, _ in asked for file in target.files if file.when(plan))
    return frozenset(f"{target.name}/{file.name}" for target, file in every)


def view_of(target: Target, spec: str) -> View:
    """What a target's program sees; `spec` is the spec's directory from the bundle's root."""
    view = View(spec, elsewhere=any(start.elsewhere for start in target.starts))
    return view.from_folder(target.name) if _works_at_home(target) else view


def _works_at_home(target: Target) -> bool:
    return any(start.at_home for start in target.starts)


def as_seen(
    asked: Sequence[Asked], plan: Plan, loaded: Loaded, outset: Outset | None
) -> dict[str, Plan]:
    """The plan for each target, with paths as the target's program sees them."""
    if outset is None:
        return {target.name: plan for target, _ in asked}
    bundled = paths(asked, plan)
    variable = next((target.media.variable for target, _ in asked if target.media.variable), "")
    return {
        target.name: placed(plan, loaded, view_of(target, outset.spec), bundled, variable)
        for target, _ in asked
    }


Emitting = Callable[[Asked, Plan, Mapping[str, str], tuple[str, ...]], Emitted]
"""Writes the files of a target for a plan, given the installed releases and header lines."""


def with_commands(
    asked: Sequence[Asked],
    plans: dict[str, Plan],
    spec: Spec,
    emitting: Emitting,
    software: Mapping[str, str],
) -> dict[str, Plan]:
    """The plans of the targets; those that start the plan's script get the trainer's flags.

    The flags belong to the trainer's own script, if the spec names no script, or names the local
    path of a script from the trainer's repository.
    """
    starting = [t.name for t, _ in asked if any(each.needs_script for each in t.starts)]
    trainer = next((each for each in asked if each[0].command is not None), None)
    if trainer is None or not starting:
        return plans
    script = plans[starting[0]].launch.script
    own = trainer[0]
    is_there = any(each.repository for each in own.starts) and not spec.run.arguments
    if (script != UNNAMED or spec.run.script is not None) and not is_there:
        return plans
    files, _ = emitting(trainer, plans[own.name], software, ())
    held = next((each for each in files if "script" in each.values), None)
    if own.command is None or held is None:
        return plans
    first, *flags = own.command(held.values)
    names = {each.name: f"{own.name}/{each.name}" for each in files}
    beside = [names.get(word, word) for word in flags]
    words = shlex.join([first if script == UNNAMED else script, *beside])
    return {
        name: plan.with_values({"launch.script": words}) if name in starting else plan
        for name, plan in plans.items()
    }


# ── files that name each other ───────────────────────────────────────────────────────────────────


def bundle(
    asked: Sequence[Asked],
    artifacts: Artifacts,
    plan: Plan,
    spec: Spec,
    header: Sequence[str],
    base: str = "..",
) -> Bundle:
    """Make files refer to each other by path, and write the entry that starts them.

    `base` is the spec's directory relative to the bundle's root. A reference to a file that does
    not exist is an error. If nothing can be started, there is no entry, and a diagnostic says why.
    """
    lost: dict[str, Diagnostic] = {}
    bound: dict[str, tuple[Artifact, ...]] = {}
    for target, _ in asked:
        names = _Names(target, artifacts)
        bound[target.name] = tuple(names.bind(each, header) for each in artifacts[target.name])
        for each in artifacts[target.name]:
            lost = {**names.lost(each), **lost}
    found = (*lost.values(), *_misnamed(spec, asked, artifacts))
    ways = [way for way in _ways(asked, plan) if way.is_ready(asked, spec)]
    chosen = min(ways, key=_Way.rank, default=None)
    before = searched(plan, base)
    if chosen is not None and not chosen.start.elsewhere:
        before += prepared([target for target, _ in asked], bound, plan)
    said = (*header, *again([target for target, _ in asked], plan, spec))
    run = None if chosen is None else entry(chosen.folder, chosen.command, before, said)
    packages = None if chosen is None or chosen.start.elsewhere else _packages(plan, header)
    return Bundle(bound, run, packages, (*found, *_unready(asked, plan, spec)))


class _Names(Struct, frozen=True):
    """The paths of the files that a target's files refer to."""

    target: Target
    artifacts: Artifacts

    def bind(self, each: Artifact, header: Sequence[str]) -> Artifact:
        """A file with its references replaced by paths."""
        values: Json = each.values
        for key, named in self._named(each):
            values = _with(values, key.split("."), self._bound(named))
        return _again(self._file(each), each, values, header)

    def lost(self, each: Artifact) -> dict[str, Diagnostic]:
        """A diagnostic for each reference to a file that no target writes."""
        names = (named for _, named in self._named(each) if isinstance(named, str))
        path = f"{self.target.name}/{each.name}"
        return {name: _nobody(path, name) for name in names if self.place(name) is None}

    def _named(self, each: Artifact) -> Iterator[tuple[str, Json]]:
        """The keys of a file that refer to others, with their values."""
        found = ((key, value_at(each.values, key)) for key in self._file(each).names)
        return ((key, value) for key, value in found if value is not None)

    def _file(self, each: Artifact) -> File:
        return next(file for file in self.target.files if file.name == each.name)

    def _bound(self, named: Json) -> Json:
        """A reference as a path; in a list of words, each word that is a reference."""
        if isinstance(named, list):
            return [self.place(word) or word for word in named]
        return self.place(named) or named

    def place(self, name: Json) -> str | None:
        """The path of a file as the target's program sees it, its own first; None: no such file."""
        own = self.target.name
        for folder in (own, *(each for each in self.artifacts if each != own)):
            if any(each.name == name for each in self.artifacts[folder]):
                path = f"{folder}/{name}"
                return posixpath.relpath(path, own) if _works_at_home(self.target) else path
        return None


def _again(file: File, each: Artifact, values: Json, header: Sequence[str]) -> Artifact:
    return each if values is each.values else artifact(file, dict(values), header)


def _with(values: Mapping[str, Any], keys: Sequence[str], value: Json) -> Mapping[str, Any]:
    """A document with another value for a key; the same object if nothing changes."""
    first, *rest = keys
    new = _with(values[first], rest, value) if rest else value
    return values if new == values[first] else {**values, first: new}


def _nobody(file: str, name: str) -> Diagnostic:
    return Diagnostic(
        "E0910",
        "error",
        f"{file} names {name}, which none of the requested targets writes",
        (Label("requested here", path="targets"),),
        help=f"also request a trainer's target, which writes its own {name}",
    )


def _misnamed(spec: Spec, asked: Sequence[Asked], artifacts: Artifacts) -> Iterator[Diagnostic]:
    """Report script arguments that point into a target's folder but not at a file there."""
    targets = [target.name for target, _ in asked]
    for at, word in enumerate(spec.run.arguments):
        folder, _, name = word.partition("/")
        written = [each.name for each in artifacts[folder]] if folder in targets else []
        if name and written and name not in written:
            yield Diagnostic(
                "E0910",
                "error",
                f"run.arguments names {word}, which is not a file of the bundle",
                (Label("named here", path=f"run.arguments[{at}]"),),
                (f"{folder} writes {joined(written, 'and')}",),
                help=f"name one of them, or write ./{word} for a file beside the spec",
            )


def enclosed(
    asked: Sequence[Asked], plan: Plan, artifacts: Artifacts
) -> dict[str, tuple[Artifact, ...]]:
    """The files, and those that embed them for clusters that do not see this directory."""
    texts = {
        f"{name}/{each.name}": each.text for name, files in artifacts.items() for each in files
    }
    found = dict(artifacts)
    for target, _ in asked:
        if target.encloses is not None:
            found[target.name] = (*artifacts[target.name], target.encloses(plan, texts))
    return found


# ── the entry ────────────────────────────────────────────────────────────────────────────────────


class _Way(Struct, frozen=True):
    """One way to start the files of a target."""

    target: Target
    start: Start

    def is_ready(self, asked: Sequence[Asked], spec: Spec) -> bool:
        """Whether everything that it starts is known."""
        if self.start.repository:
            return spec.run.script is not None
        return not self.start.needs_script or has_program(asked, spec)

    def rank(self) -> tuple[bool, bool]:
        """Sort key: clusters before this machine, self-starting trainers before launchers."""
        return not self.start.submits, self.start.needs_script

    @property
    def folder(self) -> str:
        """The folder in which it is started, after a slash; empty: the bundle's root."""
        return f"/{self.target.name}" if self.start.at_home else ""

    @property
    def command(self) -> str:
        """The command that starts it."""
        return shlex.join([*self.start.words, *([self.file] if self.file else [])])

    @property
    def file(self) -> str:
        """The path in the bundle of the file that it starts; empty if it needs none."""
        return f"{self.target.name}/{self.start.file}" if self.start.file else ""


def _ways(asked: Sequence[Asked], plan: Plan) -> list[_Way]:
    """How each requested target starts something, if it does."""
    return [way for target, _ in asked for way in _first(target, plan)]


def _first(target: Target, plan: Plan) -> list[_Way]:
    written = {file.name for file in target.files if file.when(plan)}
    held = [each for each in target.starts if not each.file or each.file in written]
    return [_Way(target, each) for each in held[:1]]


def _packages(plan: Plan, header: Sequence[str]) -> Artifact:
    """requirements.txt: the packages that the run imports, in the releases of its files.

    A comment names the releases of Python on which they install.
    torchvision is listed together with torch. Otherwise a package that requires it would install
    its newest release, and with that another torch.
    """
    torch, index = wheel(plan.job.torch) if plan.job.torch else ("", None)
    first = ([f"--extra-index-url {index}"] if index else []) + [torch, "torchvision"]
    lines = [*(first if torch else []), *plan.job.packages]
    commands = _installed_by(torch, index, plan.job.packages)
    python = spelled(pythons(lines))
    needed = (f"Python {python}",) if python else ()
    comments = (f"# {each}" for each in (*header, *needed, *commands))
    text = "".join(f"{line}\n" for line in (*comments, *lines))
    values = {"lines": lines, "commands": commands, "python": python}
    return Artifact(PACKAGES, "text", text, values)


def _installed_by(torch: str, index: str | None, packages: Sequence[str]) -> tuple[str, ...]:
    """The commands that install the packages."""
    if not any(each.partition("=")[0] in BUILT_ON_TORCH for each in packages):
        return (f"pip install -r {PACKAGES}",)
    source = f" --extra-index-url {index}" if index else ""
    return (
        f"pip install {torch or 'torch'} {BUILD_TOOLS}{source}",
        f"pip install --no-build-isolation -r {PACKAGES}",
    )


def _unready(asked: Sequence[Asked], plan: Plan, spec: Spec) -> Iterator[Diagnostic]:
    """Report what cannot be started, and what is missing for it."""
    ways = _ways(asked, plan)
    for way in ways:
        if not way.is_ready(asked, spec):
            yield _unnamed(way, plan)
    if not ways and not has_program(asked, spec):
        names = joined((target.name for target, _ in asked), "and")
        yield Diagnostic(
            "script-not-named",
            "note",
            f"the files of {names} need a training script of yours, and the spec names none",
            (Label("requested here", path="targets"),),
            help=(
                "name it, and the bundle will start it: `run: {script: train.py, arguments: [...]}`"
            ),
        )


def _unnamed(way: _Way, plan: Plan) -> Diagnostic:
    if way.start.repository:
        what = f"a script of {way.start.repository}, whose location is not given"
        mending = "give its path, relative to the spec: `run: {script: ...}`"
    else:
        what = f"{plan.launch.script}, and no script is named"
        mending = "name it: `run: {script: train.py}`; or request a trainer's target, such as trl"
    return Diagnostic(
        "script-not-named",
        "warning",
        f"{way.file} starts {what}",
        (Label("requested here", path="targets"),),
        help=mending,
    )
