"""tunec: the compiler for fine-tuning configs.

`plan` decides a spec, `compile` writes it out for its targets, `explain` says why a value is what
it is. They are what the command line calls: they return objects and print nothing, and a fault of
the spec is a `Diagnostic` in the result, never an exception. Nothing heavy is imported before the
first call.
"""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if __spec__ is not None and hasattr(__spec__.loader, "archive"):  # `zipimport.zipimporter` has it
    raise ImportError(
        "tunec does not run from an archive, since its tables and the programs that it starts are "
        "files beside its modules: install the wheel with pip"
    )

from tunec.compiler.version import __version__

if TYPE_CHECKING:
    from tunec.compiler.diagnostics.diagnostic import Diagnostic
    from tunec.compiler.driver import Compiled, Planned
    from tunec.compiler.frontend.load import Loaded
    from tunec.compiler.ir.ledger import Definition, Ledger
    from tunec.compiler.ir.plan import Plan
    from tunec.compiler.lints.lint import Linted
    from tunec.compiler.requirements import Asked
    from tunec.compiler.target import Artifact
    from tunec.compiler.translate.translate import Translated
    from tunec.schemas.spec import Spec
    from tunec.targets.registry import UnknownTarget

__all__ = [
    "Artifact",
    "Compiled",
    "Definition",
    "Diagnostic",
    "Ledger",
    "Linted",
    "NoTarget",
    "Plan",
    "Planned",
    "Source",
    "Spec",
    "Translated",
    "UnknownTarget",
    "__version__",
    "compile",
    "explain",
    "lint",
    "plan",
    "translate",
]

Source = str | os.PathLike[str] | Mapping[str, Any]
"""A spec: its path, its text (a string with a line break), or its data."""

_HOMES: Final[Mapping[str, str]] = {
    "Artifact": "tunec.compiler.target",
    "Compiled": "tunec.compiler.driver",
    "Definition": "tunec.compiler.ir.ledger",
    "Diagnostic": "tunec.compiler.diagnostics.diagnostic",
    "Ledger": "tunec.compiler.ir.ledger",
    "Linted": "tunec.compiler.lints.lint",
    "Plan": "tunec.compiler.ir.plan",
    "Planned": "tunec.compiler.driver",
    "Spec": "tunec.schemas.spec",
    "Translated": "tunec.compiler.translate.translate",
    "UnknownTarget": "tunec.targets.registry",
}


class NoTarget(ValueError):
    """Neither the call nor the spec names a target to compile to."""


def plan(
    spec: Source,
    *,
    hardware: str | None = None,
    targets: Sequence[str] = (),
    overrides: Sequence[str] = (),
    allow_outside: bool = False,
) -> "Planned":
    """Decide every slot of a spec, with its memory and its time.

    `hardware` replaces the spec's own, `targets` its targets (`huggingface@4.40`), `overrides` are
    `path=value`. Paths in a spec that is given as text or data are relative to the working
    directory; `allow_outside` lets it name files outside its project. Raises UnknownTarget.
    """
    from tunec.compiler.driver import plan as decide

    loaded = _load(spec, hardware, overrides, allow_outside=allow_outside)
    return decide(loaded, _dialects(loaded, targets))


def compile(  # noqa: A001  the word of the command line
    spec: Source,
    *,
    hardware: str | None = None,
    targets: Sequence[str] = (),
    overrides: Sequence[str] = (),
    allow_outside: bool = False,
    output: str | os.PathLike[str] | None = None,
) -> "Compiled":
    """Plan a spec and write the files of its targets, in memory: all of them, or none.

    Takes what `plan` takes. With `output`, the directory that the files will be in, they are a
    bundle that can be started there: `texts()` has each by its path, `run.sh` among them. Raises
    UnknownTarget, and NoTarget where no target is named at all.
    """
    from tunec.compiler.bundle import LAUNCH, outset
    from tunec.compiler.driver import compile_spec
    from tunec.targets.registry import TARGETS

    loaded = _load(spec, hardware, overrides, allow_outside=allow_outside)
    asked = _dialects(loaded, targets)
    if not asked and loaded.spec is not None:
        raise NoTarget("no target is named: give `targets`, here or in the spec")
    if output is None:
        return compile_spec(loaded, asked)
    starter = TARGETS.resolve(LAUNCH, loaded.software)
    return compile_spec(loaded, asked, outset(loaded, Path(output), starter))


def explain(planned: "Planned", slot: str) -> str:
    """Why a slot of a plan has its value: the tree down to the lines and facts it rests on.

    Raises KeyError for a slot that does not exist or that no pass came to decide.
    """
    from tunec.compiler.review.explain import explain_text

    return explain_text(planned, slot)


def lint(
    *files: str | os.PathLike[str],
    hardware: str | None = None,
    model: str | None = None,
    world_size: int | None = None,
    readers: Sequence[str] = (),
    software: Mapping[str, str] | None = None,
    allow: Mapping[str, str] | None = None,
    allow_outside: bool = False,
) -> "Linted":
    """What is wrong with configs that are there, read together with those that they refer to.

    `readers` say who reads them (`deepspeed`, `huggingface@4.44`), `software` which versions run,
    `allow` gives a reason for each rule that is to be left out, `allow_outside` lets files name
    others outside their project. Raises ValueError for hardware, a model, a reader or a version
    that leads nowhere; whatever is wrong with a file is a diagnostic.
    """
    from tunec.compiler.diagnostics.allow import Allowance
    from tunec.compiler.lints.environment import environment_of
    from tunec.compiler.lints.lint import lint_files
    from tunec.targets.registry import TARGETS

    targets = TARGETS.readable()
    environment = environment_of(
        targets,
        hardware=hardware,
        model=model,
        world=world_size,
        readers=readers,
        software=software,
        allow_outside=allow_outside,
    )
    allowed = [Allowance(name, reason) for name, reason in (allow or {}).items()]
    return lint_files([Path(each) for each in files], targets, environment, allowed)


def translate(
    *files: str | os.PathLike[str],
    to: Sequence[str],
    hardware: str | None = None,
    model: str | None = None,
    world_size: int | None = None,
    readers: Sequence[str] = (),
    software: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    without: Sequence[str] = (),
    allow_outside: bool = False,
) -> "Translated":
    """Configs that are there in the words of other targets, in memory: all of them, or none.

    `to` names the targets (`huggingface@5.23`), `overrides` are `SLOT=VALUE`, `without` keys that
    may be left behind; the others are those of `lint`. Raises UnknownTarget for a target that does
    not exist, and ValueError for a word that leads nowhere; whatever is wrong with a file, or
    cannot be said, is a diagnostic.
    """
    from tunec.compiler.lints.environment import environment_of
    from tunec.compiler.translate.translate import given_slots, translate_files
    from tunec.targets.registry import TARGETS

    targets = TARGETS.readable()
    environment = environment_of(
        targets,
        hardware=hardware,
        model=model,
        world=world_size,
        readers=readers,
        software=software,
        allow_outside=allow_outside,
    )
    asked = tuple(TARGETS.resolve(name, software) for name in to)
    paths = [Path(each) for each in files]
    given = given_slots(overrides)
    return translate_files(paths, asked, targets, environment, given=given, without=without)


def _load(
    spec: Source, hardware: str | None, overrides: Sequence[str], *, allow_outside: bool
) -> "Loaded":
    from tunec.compiler.frontend.load import load_mapping, load_spec, load_text

    if isinstance(spec, Mapping):
        return load_mapping(spec, overrides, hardware, allow_outside=allow_outside)
    if isinstance(spec, str) and "\n" in spec:
        return load_text(spec, overrides=overrides, hardware=hardware, allow_outside=allow_outside)
    return load_spec(Path(spec), overrides, hardware, allow_outside=allow_outside)


def _dialects(loaded: "Loaded", names: Sequence[str]) -> "tuple[Asked, ...]":
    from tunec.compiler.requirements import together
    from tunec.targets.registry import TARGETS

    wanted = names or (loaded.spec.targets if loaded.spec else ())
    return together(TARGETS.resolve, wanted, loaded.software)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tunec' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
