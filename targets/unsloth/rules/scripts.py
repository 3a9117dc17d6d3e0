"""Scripts that load by Unsloth: the order of their imports, and the requested bits."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.python_calls import Call
from tunec.compiler.lints.checks.keys.trainer_calls import scripts_of
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.python_files import calls_of
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.source import Span

_READS: Final = ("model:*", "hf:*", "sft:*", "dpo:*", "grpo:*", "kto:*", "peft:*")
_IMPORT: Final = re.compile(r"(?m)^(?:from|import)[ \t]+(unsloth|trl|transformers|peft)\b")


@rule("unsloth-imported-late", "warning", "slow", consumers=("unsloth",), reads=_READS)
def unsloth_imported_late(run: LintContext) -> Iterator[Finding]:
    """Packages that Unsloth patches are imported before it, so that they run unpatched."""
    for document in scripts_of(run):
        imports = [(each[1], each.start(1)) for each in _IMPORT.finditer(document.text)]
        names = [name for name, _ in imports]
        if "unsloth" in names[1:] and names[0] != "unsloth":
            late = next(at for name, at in imports if name == "unsloth")
            yield _imported_late(document, imports[0], late)


def _imported_late(document: Document, early: tuple[str, int], late: int) -> Finding:
    name, at = early
    return Finding(
        f"{name} is imported before unsloth",
        (
            _label(document, late, "unsloth", "too late: Unsloth warns, and goes on"),
            _label(document, at, name, "not patched", primary=False),
        ),
        (
            (
                "importing unsloth patches trl, transformers and peft; names taken from them "
                "before keep what was there: training is slower, and takes more memory"
            ),
        ),
        "import unsloth first",
    )


def _label(document: Document, at: int, name: str, text: str, *, primary: bool = True) -> Label:
    before = document.text[:at]
    line, column = before.count("\n") + 1, at - before.rfind("\n")
    span = Span(document.name, line, column, line, column + len(name))
    return Label(text, span, name, primary)


@rule("unsloth-bits-at-odds", "error", "load", consumers=("unsloth",), reads=("model:*",))
def unsloth_bits_at_odds(run: LintContext) -> Iterator[Finding]:
    """A base in 8 bits is requested, and 4 bits are the default.

    unsloth 2025.6.5 to 2026.10.9 models/loader.py `FastModel.from_pretrained`.
    """
    for document in scripts_of(run):
        calls = calls_of(document.name, document.text)
        for call in () if calls is None else calls.found:
            if call.package == "unsloth" and call.name == "from_pretrained" and not call.is_open:
                yield from _two_widths(call, document)


def _two_widths(call: Call, document: Document) -> Iterator[Finding]:
    places = {name: Place(document, name, node) for name, node in call.fields.items()}
    eight, four = places.get("load_in_8bit"), places.get("load_in_4bit")
    if eight is None or eight.value is not True or not _DECIDE.isdisjoint(places):
        return
    if four is None or four.value is True:
        yield Finding(
            "load_in_8bit cannot be combined with load_in_4bit",
            (eight.label("refused"), *(() if four is None else also(four, "beside it"))),
            ("load_in_4bit is True by default",) if four is None else (),
            "write load_in_4bit=False",
        )


_DECIDE: Final = frozenset({"full_finetuning", "quantization_config", "load_in_fp8"})
"""Other arguments that decide the bits."""
