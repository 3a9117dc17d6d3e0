"""`--software`: releases as people name them, and notes about unknown ones."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.cli.session import Misuse
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.environment import package_of, pin_of, split_requirement
from tunec.compiler.releases import Releases
from tunec.compiler.target import Target

_WORD: Final = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?P<bounds>[<>=!~].*)")
_FEW: Final = 3
_MOST: Final = 8


def software_of(given: list[str]) -> dict[str, str]:
    """A version, or bounds such as `>=4.40,<5`, for each package: `NAME=VERSION`, or as in pip."""
    found: dict[str, str] = {}
    for word in given:
        match = _WORD.fullmatch(word.strip())
        if match is None:
            raise Misuse(f"--software takes NAME=VERSION, or NAME>=VERSION, not {word!r}")
        bounds = re.sub(r"\s", "", match["bounds"])
        version = bounds.lstrip("=")
        is_exact = bounds.startswith("=") and not version.endswith("*") and "," not in version
        found[match["name"]] = version if is_exact and version else _checked(word, bounds)
    return found


def _checked(word: str, bounds: str) -> str:
    """Bounds, checked by packaging."""
    text = f"={bounds}" if re.match(r"=[^=]", bounds) else bounds
    try:
        Releases(text).contains(Version("1"))
    except ValueError:  # InvalidVersion is one
        raise Misuse(f"--software takes NAME=VERSION, or NAME>=VERSION, not {word!r}") from None
    return text


def settled(software: Mapping[str, str], targets: Mapping[str, Target]) -> dict[str, str]:
    """One version of each package; for bounds, the newest known release within them."""
    found: dict[str, str] = {}
    for name, text in software.items():
        pin, package = pin_of(name, text), package_of(targets, name)
        known = pin.known(package.releases) if pin is not None and package is not None else ()
        found[name] = str(known[-1]) if known else text
    return found


# ── what is told ─────────────────────────────────────────────────────────────────────────────────


def known_from(runs: Iterable[LintContext]) -> str | None:
    """The releases that the repository pins, of packages whose keys were checked."""
    told: dict[str, None] = {}
    for run in runs:
        tables = [each.target for each in run.documents if each.target is not None]
        packages = {name for each in tables for name in (each.package, *each.beside)}
        for name, release in run.releases.items():
            if release.pin is not None and name in packages:
                told[f"{release.in_words} ({release.pin.where})"] = None
    every = list(told)
    more = f" and {len(every) - _MOST} more" if len(every) > _MOST else ""
    return f"releases: {', '.join(every[:_MOST])}{more}" if every else None


def unknown_releases(software: Mapping[str, str], targets: Mapping[str, Target]) -> Iterator[str]:
    """Notes about unknown releases; the files are checked nevertheless."""
    for name, text in software.items():
        package, version = package_of(targets, name), Version(text)
        ranges = [each.supported for each in targets.values() if each.package == name]
        if package is None or any(each.contains(version) for each in (package.supported, *ranges)):
            continue
        told = f"{name} {text} is not among the known releases ({package.supported})"
        if version > Version(package.latest):
            yield f"{told}: changes in that release are not taken into account"
        else:
            oldest = package.releases[0]
            yield f"{told}: keys and defaults are taken from {oldest}; {_holding(name, version)}"


def _holding(package: str, version: Version) -> str:
    """The rules about a package that apply to an old release, by their ranges."""
    from tunec.compiler.lints.index import rules

    ranges: dict[str, list[Releases]] = {}
    for rule in rules():
        for name, releases in map(split_requirement, rule.consumers):
            if name == package:
                ranges.setdefault(rule.name, []).append(releases)
    out = [n for n, every in ranges.items() if not any(each.contains(version) for each in every)]
    if not out:
        return f"all {len(ranges)} rules about {package} are checked"
    more = f" and {len(out) - _FEW} more" if len(out) > _FEW else ""
    return (
        f"{len(ranges) - len(out)} rules about {package} are checked, and {len(out)} are not, "
        f"since they hold for later releases alone: {', '.join(out[:_FEW])}{more}"
    )
