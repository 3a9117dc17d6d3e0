"""From words of a command line to the environment of a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import did_you_mean, joined, nearest
from tunec.compiler.frontend.software import meant_program
from tunec.compiler.lints.environment import Environment
from tunec.compiler.target import Target

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel
    from tunec.compiler.resolve import Unresolved
    from tunec.schemas.hardware.profile import Cluster


class Unusable(ValueError):
    """A word of the surroundings leads nowhere; the message says which and why."""


class Faulty(Exception):
    """A file that describes the surroundings is wrong: its faults, and its text by its name."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...], sources: Mapping[str, str]) -> None:
        super().__init__("; ".join(each.message for each in diagnostics))
        self.diagnostics = diagnostics
        self.sources = sources


def environment_of(
    targets: Mapping[str, Target],
    *,
    hardware: str | None = None,
    model: str | None = None,
    world: int | None = None,
    readers: Sequence[str] = (),
    software: Mapping[str, str] | None = None,
) -> Environment:
    """Resolve what is named: hardware and model as in a spec, readers as `NAME[@VERSION]`.

    A version in `software` wins over one in `readers`, that over the hardware's own. A model that
    the catalogue does not have is known by its name alone. Raises Unusable for any other name, or
    a version, that leads nowhere, Faulty for a file of hardware or of a model that is wrong.
    """
    if world is not None and world < 1:
        raise Unusable(f"a run has at least 1 process, not {world}")
    named = [each.partition("@") for each in readers]
    by_reader = {_target(name, targets).package: v for name, _, v in named if v}
    cluster = _cluster(hardware)
    own = dict(cluster.software) if cluster else {}
    versions = {**own, **by_reader, **(software or {})}
    _check_versions(versions)
    from tunec.compiler.resolve import devices_of

    return Environment(
        cluster=cluster,
        devices=devices_of(cluster) if cluster else {},
        world=world,
        model=_model(model),
        model_name=model,
        software=versions,
        readers=tuple(_target(name, targets).name for name, _, _ in named),
    )


def _target(name: str, targets: Mapping[str, Target]) -> Target:
    if name not in targets:
        hint = did_you_mean(nearest(name, targets)) or f"there are {joined(targets, 'and')}"
        raise Unusable(f"no reader of configs is called {name!r}; {hint}")
    return targets[name]


def _check_versions(versions: Mapping[str, str]) -> None:
    for package, text in versions.items():
        meant = meant_program(package)
        if meant is not None:
            raise Unusable(f"no program is called {package!r}; {did_you_mean([meant])}")
        try:
            Version(text)
        except InvalidVersion:
            raise Unusable(f"{text!r} is no version of {package}") from None


def _cluster(name: str | None) -> "Cluster | None":
    if name is None:
        return None
    from tunec.compiler.resolve import Unresolved, resolve_cluster

    try:
        return resolve_cluster(name, Path())
    except Unresolved as fault:
        raise _fault(name, fault) from None
    except (LookupError, ValueError, OSError) as fault:
        raise Unusable(_words(fault)) from None


def _model(name: str | None) -> "ResolvedModel | None":
    if name is None:
        return None
    from tunec.compiler.resolve import Unresolved, resolve_model
    from tunec.schemas.models.catalogue import UnknownName

    try:
        return resolve_model(name, Path())
    except UnknownName:
        return None
    except Unresolved as fault:
        raise _fault(name, fault) from None
    except (LookupError, ValueError, OSError) as fault:
        raise Unusable(_words(fault)) from None


def _fault(name: str, fault: "Unresolved") -> Unusable | Faulty:
    if fault.files:
        return Faulty(fault.diagnostics, dict(each.source for each in fault.files))
    return Unusable(f"{name}: {fault}")


def _words(fault: Exception) -> str:
    hint = did_you_mean(getattr(fault, "near", ()))
    return f"{fault}; {hint}" if hint else str(fault) or type(fault).__name__
