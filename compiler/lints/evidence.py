"""What keys tell of the release that reads them, where nobody names it."""

from collections.abc import Iterable

from packaging.version import Version

from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.effective import releases_around
from tunec.compiler.lints.environment import Release
from tunec.schemas.frozen import replace

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
    known = sorted(map(Version, known_releases(_STEM)))
    told = said & _fields(known[-1])
    lacking = [each for each in known if not told <= _fields(each)]
    if not lacking:
        return release
    taken = known[-1] if told - _fields(release.version) else release.version
    return replace(release, version=taken, after=lacking[-1])


def _fields(release: Version) -> frozenset[str]:
    """What a release may know: between two known ones, what either knows."""
    around = releases_around(_STEM, str(release))
    return frozenset(key for each in around for key in class_schema(_STEM, each)["properties"])
