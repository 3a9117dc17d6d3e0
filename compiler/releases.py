"""Ranges of releases, such as `>=4.40,<5.25`: the specifiers of PEP 440."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import eq, ge, le, ne
from typing import Final, TypeVar

from msgspec import Struct
from packaging.version import Version

from tunec.schemas.caches import cached


def _below(version: Version, bound: Version) -> bool:
    """PEP 440: releases below a bound, without pre-releases of the bound itself."""
    is_preview = version.is_prerelease and Version(version.base_version) == bound
    return version < bound and not is_preview


def _above(version: Version, bound: Version) -> bool:
    """PEP 440: releases above a bound, without post-releases of the bound itself."""
    return version > bound and version.base_version != bound.base_version


def _compatible(version: Version, bound: Version) -> bool:
    """PEP 440: at least the bound, and equal to it except for the last number."""
    kept = bound.release[:-1]
    return version >= bound and version.release[: len(kept)] == kept


_OPERATORS: Final[Mapping[str, Callable[[Version, Version], bool]]] = {
    "===": eq,
    ">=": ge,
    "<=": le,
    "==": eq,
    "!=": ne,
    "~=": _compatible,
    "<": _below,
    ">": _above,
}


class Releases(Struct, frozen=True):
    """Releases between bounds, including pre-releases.

    packaging's own class imports everything that names platforms, a thirtieth of the start-up time.
    """

    text: str
    """Bounds with the operators of PEP 440, joined by commas; empty: every release."""

    def contains(self, release: Version | str) -> bool:
        """Whether a release is among them; ValueError for a malformed bound."""
        version = Version(release) if isinstance(release, str) else release
        return all(_keeps(version, bound.strip()) for bound in self.text.split(",") if bound)

    @property
    def bounds(self) -> tuple[tuple[str, str], ...]:
        """The operator and version of each bound, as written."""
        found = (each.strip() for each in self.text.split(",") if each.strip())
        return tuple((_sign(each), each.removeprefix(_sign(each)).strip()) for each in found)

    def __str__(self) -> str:
        return self.text


ANY: Final = Releases("")


def _sign(bound: str) -> str:
    return next((sign for sign in _OPERATORS if bound.startswith(sign)), "")


parsed: Final = cached()(Version)
"""Parses a version in a table or a spec; raises packaging.version.InvalidVersion."""


def neighbours(version: Version, releases: Iterable[str]) -> tuple[str, ...]:
    """The last of these releases before a version, and the first after it; they come in order."""
    every = [(parsed(each), each) for each in releases]
    older = [text for each, text in every if each < version]
    newer = [text for each, text in every if each > version]
    return (*older[-1:], *newer[:1])


_Row = TypeVar("_Row")


def row_at(version: Version, table: Sequence[tuple[str, _Row]], before: _Row | None = None) -> _Row:
    """The row of a release in a table, oldest first, each of whose rows names its first release.

    `before` holds for releases older than every row; by default the first row does.
    """
    rows = [row for since, row in table if version >= parsed(since)]
    if rows:
        return rows[-1]
    return table[0][1] if before is None else before


@cached(4096, lasting=True)
def _keeps(version: Version, bound: str) -> bool:
    sign = _sign(bound)
    if not sign:
        raise ValueError(f"{bound!r} is not a version bound")
    return _holds(_OPERATORS[sign], version, bound.removeprefix(sign))


def _holds(holds: Callable[[Version, Version], bool], version: Version, bound: str) -> bool:
    """Compare a version with a bound; `4.45.*` compares only that many parts.

    A build such as `2.3.0+cu121` counts as its release, unless the bound names a build too.
    """
    if not bound.endswith(".*"):
        wanted = Version(bound)
        return holds(version if wanted.local else _released(version), wanted)
    whole = Version(bound.removesuffix(".*"))
    return holds(Version(".".join(map(str, version.release[: len(whole.release)]))), whole)


def _released(version: Version) -> Version:
    return Version(version.public) if version.local else version


class Package(Struct, frozen=True):
    """A distribution whose version selects keys, and the versions that its rows cover."""

    supported: Releases
    releases: tuple[str, ...]
    """The newest release of each supported minor version, oldest first."""
    usual: str = ""
    """The default version, if it is not the newest."""

    @property
    def latest(self) -> str:
        """The version to use if none is given."""
        return self.usual or self.releases[-1]

    def release(self, text: str) -> Version:
        """The version that a text means: `0.16` is the newest 0.16 release, `0.16.4` itself.

        Raises packaging.version.InvalidVersion for malformed text.
        """
        asked = parsed(text)
        if len(asked.release) > 2 or asked.pre or asked.dev:
            return asked
        known = map(parsed, self.releases)
        width = len(asked.release)
        return max((v for v in known if v.release[:width] == asked.release), default=asked)
