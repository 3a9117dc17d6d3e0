"""Axolotl's adapter qlora over a base that is not loaded in 4 bits."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("axolotl"):
        adapter = document.get("adapter")
        if adapter is None or adapter.value != "qlora" or document.value("merge_lora"):
            continue
        other = _other(document)
        if other is None and document.value("load_in_4bit") is True:
            continue
        yield Finding(
            f"adapter qlora with {other.path}" if other else "adapter qlora without load_in_4bit",
            (
                (other or adapter).label("not 4 bits" if other else "needs load_in_4bit"),
                *([adapter.label("", primary=False)] if other else []),
            ),
            ("Axolotl does not set it by itself: it refuses the file",),
            "set load_in_4bit: true, or use adapter lora",
            _fix(document, other),
        )


def _other(document: Document) -> Place | None:
    """What else the base is loaded in."""
    found = (document.get(key) for key in ("load_in_8bit", "gptq"))
    return next((each for each in found if each is not None and each.value is True), None)


def _fix(document: Document, other: Place | None) -> Fix | None:
    said = document.get("load_in_4bit")
    if other is not None:
        return None
    edit = said.replaced(True) if said else document.added("load_in_4bit", True)
    return Fix((edit,), "safe") if edit else None


RULE = Rule(
    name="qlora-not-in-four-bits",
    severity="error",
    consequence="parse",
    consumers=("axolotl",),
    sources=("axolotl 0.8.1 to 0.19.0 utils/schemas/peft.py `LoraConfig.validate_qlora`",),
    check=_check,
)
