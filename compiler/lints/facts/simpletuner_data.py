"""The data sets of SimpleTuner's multidatabackend.json."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place


class DataSet(Struct, frozen=True):
    """One entry of the list."""

    document: Document
    position: str
    """`[0]`: its key in the document."""

    def place(self, key: str) -> Place | None:
        """Where a key of the entry is written."""
        return self.document.get(f"{self.position}.{key}")

    def value(self, key: str, otherwise: Any = None) -> Any:
        """What the entry says for a key."""
        return self.document.value(f"{self.position}.{key}", otherwise)

    @property
    def kind(self) -> str:
        """Its `dataset_type`; pictures where nobody says it."""
        return str(self.value("dataset_type") or "image")


def lists(run: LintContext) -> Iterator[tuple[Document, tuple[DataSet, ...]]]:
    """Each list of data sets, without the entries that are turned off."""
    for document in run.of("simpletuner-data"):
        sets = (DataSet(document, key) for key in document.found if "." not in key)
        yield (
            document,
            tuple(
                each for each in sets if not each.value("disabled") and not each.value("disable")
            ),
        )
