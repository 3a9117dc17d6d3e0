"""Scripts that load by Unsloth: the order of their imports, the bits, and the marks of turns."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.python_calls import Call, Calls
from tunec.compiler.lints.checks.keys.trainer_calls import scripts_of
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.python_files import RESPONSES, calls_of
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.source import Span

_READS: Final = ("model:*", "hf:*", "sft:*", "dpo:*", "grpo:*", "kto:*", "peft:*")
_IMPORT: Final = re.compile(r"(?m)^(?:from|import)[ \t]+(unsloth|trl|transformers|peft)\b")


@rule("warning", "slow", consumers=("unsloth",), reads=_READS)
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


@rule("error", "load", consumers=("unsloth",), reads=("model:*",))
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


_FORMS: Final = (
    (r"(?:unsloth|meta-llama)/(?:meta-)?llama-3", "<|start_header_id|>", "<|end_header_id|>\\n\\n"),
    (r"(?:unsloth|qwen)/qwen[23](?:\.\d)?-", "<|im_start|>", "\\n"),
    (r"(?:unsloth|google)/gemma-[23]n?-", "<start_of_turn>", "\\n"),
    (r"(?:unsloth|google)/gemma-4-", "<|turn>", "\\n"),
)
"""Names of models, and what begins and ends the mark of a turn in their chat templates: unsloth
2026.10.9 studio/backend/utils/datasets/model_mappings.py `TEMPLATE_TO_RESPONSES_MAPPER`."""
_OTHER_FORM: Final = re.compile(r"get_chat_template\s*\(|\bchat_template\s*=|_chat_format\s*\(")
"""What gives a tokenizer another chat template than that of its model."""
_FILLED: Final = re.compile(r"\bapply_chat_template\s*\(")
_ANSWERS: Final = {"<start_of_turn>": "model", "<|turn>": "model"}


@rule("error", "init", consumers=("unsloth",), reads=("model:*",))
def turn_marks_of_another_model(run: LintContext) -> Iterator[Finding]:
    """Answers are looked for behind marks that the model's chat template does not write."""
    for document in scripts_of(run):
        calls = calls_of(document.name, document.text)
        asked = [] if calls is None else [each for each in calls.found if each.name == RESPONSES]
        if calls is None or len(asked) != 1 or _OTHER_FORM.search(document.text):
            continue
        path = _loaded(document, calls)
        form = None if path is None else _form(str(path.value))
        if path is not None and form is not None:
            yield from _strange(document, asked[0], path, form)


def _loaded(document: Document, calls: Calls) -> Place | None:
    """The name of the one published model that a script loads, if it spells it out."""
    loads = [each for each in calls.found if each.name == "from_pretrained"]
    given = (each.fields.get("model_name") or next(iter(each.positional), None) for each in loads)
    nodes = [node for node in given if node is None or "/" in str(node.value)]
    if len(nodes) != 1 or nodes[0] is None or any(each.package != "unsloth" for each in loads):
        return None
    return Place(document, "model_name", nodes[0])


def _form(path: str) -> tuple[str, str] | None:
    told = (form for pattern, *form in _FORMS if re.match(pattern, path, re.IGNORECASE))
    begin, end = next(told, (None, None))
    return None if begin is None or end is None else (begin, end)


def _strange(
    document: Document, call: Call, path: Place, form: tuple[str, str]
) -> Iterator[Finding]:
    """The finding, unless the script writes the marks itself, beside the call that names them."""
    begin, end = form
    node = call.fields.get("response_part")
    at = None if node is None else Place(document, "response_part", node)
    strange = [
        mark
        for _, mark, _ in _FORMS
        if at is not None and mark != begin and str(at.value).startswith(mark)
    ]
    if at is None or not strange or document.text.count(strange[0]) > _MARKED_TURNS:
        return
    is_filled = _FILLED.search(document.text) is not None
    who = _ANSWERS.get(begin, "assistant")
    yield Finding(
        f"{path.value} does not begin its turns with {strange[0]}",
        (at.label("in no sample"), path.label("", primary=False)),
        (
            (
                "Unsloth masks all that does not follow this mark: all labels are -100, and it "
                "ends the run with ZeroDivisionError"
            ),
            *(
                ()
                if is_filled
                else ("samples whose turns are written as text already may hold other marks",)
            ),
        ),
        f"write response_part={begin}{who}{end} and instruction_part={begin}user{end}",
        severity=None if is_filled else "warning",
    )


_MARKED_TURNS: Final = 2
"""The two arguments of the call."""
