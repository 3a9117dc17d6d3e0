"""Rules about keys that no class of ai-toolkit reads, and about replaced values."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.schemas import parser_releases, parser_schema
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest, nearly
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.caches import cached
from tunec.targets.ai_toolkit.packages import PACKAGE

_KIND: Final = "ai-toolkit"
_LIKE: Final = 0.88
_BLOCKS: Final = ("network", "train", "train.ema_config", "model", "save", "logging")
"""Blocks that one class reads whole; the class for samples depends on the model."""


@cached()
def _known() -> Mapping[str, frozenset[str]]:
    """The keys that each block's class reads in any release."""
    found: dict[str, frozenset[str]] = {}
    for release in parser_releases(PACKAGE):
        for name, block in parser_schema(PACKAGE, release)["properties"].items():
            found[name] = found.get(name, frozenset()) | frozenset(block.get("properties", ()))
    return found


@rule("error", "silent", consumers=(_KIND,), reads=("ai-toolkit:*",))
def key_unread_by_ai_toolkit(run: LintContext) -> Iterator[Finding]:
    """A block has a key that its class accepts but never reads."""
    for document in run.of(_KIND):
        for path, place in document.found.items():
            block, _, key = path.rpartition(".")
            block = "datasets" if block.startswith("datasets.[") else block
            is_asked = block in (*_BLOCKS, "datasets") and not key.startswith("[")
            if is_asked and key not in _known()[block]:
                yield _unread(block, key, place)


def _unread(block: str, key: str, place: Place) -> Finding:
    known = _known()[block]
    is_meant = nearly(key, known, _LIKE) is not None
    near = nearest(key, known)[:1]
    others = [name for name in (*_BLOCKS, "datasets") if name != block and key in _known()[name]]
    move = f"move it to {others[0]}" if others else "remove it"
    return Finding(
        f"{block} has no key {key}",
        (place.key_label("not read"),),
        ("its class accepts any key, and reads only those that it knows",),
        f"did you mean {near[0]}?" if is_meant else move,
        Fix((place.renamed(near[0]),), "unsafe") if is_meant else None,
        severity=None if is_meant or others else "warning",
    )


@rule("warning", "silent", consumers=(_KIND,), reads=("ai-toolkit:train.optimizer",))
def rate_replaced_by_ai_toolkit(run: LintContext) -> Iterator[Finding]:
    """The learning rate of an adaptive optimizer is below 0.1, and is replaced by 1."""
    for document in run.of(_KIND):
        optimizer, rate = document.get("train.optimizer"), document.get("train.lr")
        word = str(optimizer.value).lower() if optimizer is not None else ""
        low: Any = rate.value if rate is not None else 0
        is_low = isinstance(low, int | float) and 0 < low < 0.1
        if rate is not None and is_low and word.startswith(("prodigy", "dadaptation")):
            yield Finding(
                f"a learning rate of {low} is not used: {word} takes 1",
                (rate.label("replaced by 1.0"), *also(optimizer, "finds the rate itself")),
                ("a rate below 0.1 is taken for a mistake, without a message",),
                "write lr: 1.0",
            )


@rule("warning", "silent", consumers=(_KIND,), reads=("ai-toolkit:datasets",))
def size_listed_twice_in_ai_toolkit(run: LintContext) -> Iterator[Finding]:
    """A list of sizes repeats one, as width and height would: the data set is used twice."""
    for document in run.of(_KIND):
        for path, place in document.found.items():
            sizes = place.value
            is_size = path.startswith("datasets.[") and path.endswith("].resolution")
            if is_size and isinstance(sizes, list) and len(set(map(str, sizes))) < len(sizes):
                yield Finding(
                    f"the set is trained on {len(sizes)} times: its resolution lists sizes",
                    (place.label("no width and height"),),
                    ("each entry is a size of its own, for which the set is taken once more",),
                    f"write resolution: {sizes[0]}",
                    Fix((place.replaced(sizes[0]),), "unsafe"),
                )
