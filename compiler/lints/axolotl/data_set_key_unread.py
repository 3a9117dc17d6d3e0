"""A key of a data set that Axolotl's schema of data sets does not have."""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.conditions import items
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.keys.tools import keys_ever
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LISTS: Final = ("datasets", "test_datasets")
_MEANT: Final = {
    "train_on_split": "split",
    "subset": "name",
    "config": "name",
    "field_conversations": "field_messages",
    "messages_field": "field_messages",
}
"""What is often written, and the key that does it."""


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        known = _known(document)
        for key in _LISTS if known else ():
            for name, at in items(document, key):
                if name not in known:
                    yield _finding(name, at, known)
        for path, at in document.found.items():
            if "." not in path and path in known and path not in keys_ever("axolotl"):
                yield _at_the_top(path, at)


def _at_the_top(path: str, at: Place) -> Finding:
    return Finding(
        f"`{path}` is a key of a data set, and stands at the top of the file",
        (at.key_label("not read"),),
        ("what the schema does not have is dropped without a word",),
        f"write {path} below the data set in datasets",
    )


def _known(document: Document) -> frozenset[str]:
    """The keys of a data set of any kind in any known release."""
    if document.target is None or document.file is None or document.file.schema is None:
        return frozenset()
    target = document.target
    names = (document.file.schema(target.dialect(target.release(each))) for each in target.releases)
    return _keys(tuple(name for name in names if name is not None))


@cache
def _keys(names: tuple[str, ...]) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        kinds: dict[str, Any] = schema(name).get("$defs", {})
        for kind, rule in kinds.items():
            if kind.endswith("Dataset"):
                found |= set(rule.get("properties", {}))
    return frozenset(found)


def _finding(name: str, at: Place, known: frozenset[str]) -> Finding:
    near = [_MEANT[name]] if name in _MEANT else nearest(name, known)[:1]
    return Finding(
        f"a data set has no key `{name}`",
        (at.key_label("not read"),),
        ("what the schema of a data set does not have is dropped without a word",),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((at.renamed(near[0]),), "unsafe") if near else None,
    )


RULE = Rule(
    name="data-set-key-unread",
    severity="warning",
    consequence="silent",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 to 0.19.0 utils/schemas/datasets.py SFTDataset, DPODataset, KTODataset, "
            "StepwiseSupervisedDataset: pydantic models that drop other keys; 0.19.0 "
            "validation.py `check_ebft_strided_dataset_split`: train_on_split is not recognized "
            "and will be silently ignored"
        ),
    ),
    check=_check,
)
