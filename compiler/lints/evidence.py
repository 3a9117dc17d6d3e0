"""What keys tell of the release that reads them, where nobody names it."""

from collections.abc import Iterable
from dataclasses import replace

from packaging.version import Version

from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.environment import Release

_STEM = "training_arguments"
_KINDS = frozenset({"hf", *TRL})


def no_older_than_its_keys(release: Release, documents: Iterable[Document]) -> Release:
    """The taken release of transformers, or the newest where the files have a key that came later.

    A key that has gone says nothing: files are copied from old examples more often than they are
    run with old releases.
    """
    if release.is_named:
        return release
    said = {key for each in documents if each.kind in _KINDS for key in each.root.fields or ()}
    later = sorted(each for each in map(Version, known_releases(_STEM)) if each > release.version)
    came = said & (_fields(later[-1]) - _fields(release.version)) if said and later else set()
    if not came:
        return release
    lacking = (each for each in (release.version, *later) if not came <= _fields(each))
    return replace(release, version=later[-1], after=max(lacking))


def _fields(release: Version) -> frozenset[str]:
    return frozenset(class_schema(_STEM, str(release))["properties"])
