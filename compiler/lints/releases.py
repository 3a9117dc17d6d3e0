"""Which release of each package is taken to run, and what a requirement says of one."""

from collections.abc import Iterable, Mapping
from functools import cache

from packaging.version import InvalidVersion, Version

from tunec.compiler.lints.environment import Environment, Release
from tunec.compiler.releases import Package, Releases
from tunec.compiler.target import Target


@cache
def split_requirement(requirement: str) -> tuple[str, Releases]:
    """`deepspeed>=0.19.6` as a name and a range; a bare name has the empty range."""
    at = next((i for i, letter in enumerate(requirement) if letter in "<>=!~"), len(requirement))
    return requirement[:at].strip(), Releases(requirement[at:])


def releases(
    targets: Mapping[str, Target], environment: Environment
) -> Iterable[tuple[str, Release]]:
    """Each package's release: the named one, else what goes with the named ones, else the newest.

    DeepSpeed's own table and the trainer's companions give the packages; a package that somebody
    names, and that no table speaks of, is taken at its word.
    """
    named, found = environment.software, dict[str, Release]()
    for target in targets.values():
        own = Package(target.supported, target.releases or (target.latest,))
        found.setdefault(target.package, _release(target.package, own, named, target.latest))
        usual = target.companions(found[target.package].version)
        for name, package in target.beside.items():
            found.setdefault(
                name, _release(name, package, named, usual.get(name) or package.latest)
            )
    for name in named.keys() - found.keys():
        found[name] = Release(name, Version(named[name]), is_named=True)
    return found.items()


def _release(name: str, package: Package, named: Mapping[str, str], otherwise: str) -> Release:
    if name in named:
        try:
            return Release(name, package.release(named[name]), is_named=True)
        except InvalidVersion:
            pass
    return Release(name, package.release(otherwise), is_named=False)
