"""Releases for which a target's rows were not checked."""

from collections.abc import Iterator, Mapping

from packaging.version import InvalidVersion, Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.target import Target


def unsupported(
    target: Target, version: Version, software: Mapping[str, str] | None
) -> Iterator[Diagnostic]:
    """A fault for each version for which the target's rows were not checked."""
    if not target.supported.contains(version):
        yield _outside(target.package, str(version), str(target.supported), target.name)
    named = software or {}
    for name, package in target.beside.items():
        if name not in named:
            continue
        try:
            known = package.supported.contains(package.release(named[name]))
        except InvalidVersion:
            known = False
        if not known:
            yield _outside(name, named[name], str(package.supported), target.name)


def _outside(package: str, version: str, supported: str, target: str) -> Diagnostic:
    return Diagnostic(
        "E0902",
        "error",
        f"the target {target} does not know {package} {version}",
        (Label("this version", path=f"software.{package}"),),
        (f"it has the keys of {package} {supported}",),
        help=f"choose a version within {supported}",
    )
