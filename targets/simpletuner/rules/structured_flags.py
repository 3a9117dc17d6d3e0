"""Flags of SimpleTuner whose text is JSON: unreadable ones, and values of the wrong kind.

simpletuner 4.10.1 helpers/configuration/cmd_args.py `_normalize_structured_config_option`,
`_normalize_lora_target_modules`, `_parse_json_like_option` and `parse_cmdline_args`.
"""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.diffusion import amount, family, said
from tunec.compiler.lints.rule import Finding

_STRICT: Final = ("webhook_config", "publishing_config", "peft_lora_target_modules")
"""Flags that are read by `json.loads`; the others also as Python literals."""
_LOOSE: Final = (
    *("quantization_config", "diffusion_blocks_config", "distillation_config"),
    *("sdnq_modules_dtype_dict", "sdnq_modules_quant_config", "sdnq_modules_to_not_convert"),
    "sdnq_modules_to_not_use_matmul",
)
_MAPPINGS: Final = (
    *("quantization_config", "diffusion_blocks_config"),
    *("sdnq_modules_dtype_dict", "sdnq_modules_quant_config"),
)
_LOST: Final = (
    *("quantization_config", "sdnq_modules_dtype_dict", "sdnq_modules_quant_config"),
    *("validation_adapter_config", "sla_config"),
)
"""simpletuner 3.1.6 and 4.10.1 helpers/configuration/cli_utils.py `mapping_to_cli_args`: a mapping
becomes a flag only if the flag is known to be JSON, and these are not; run."""
_PATHS: Final = re.compile(r"[/\\.]")
_SIZE: Final = re.compile(r"\d+(\.\d+)?\s*[kmgt]?b?", re.IGNORECASE)
_LATE: Final = "simpletuner>=4"


def structured(run: LintContext, document: Document) -> Iterator[Finding]:
    """Errors in the flags of a file whose text is JSON, and in related flags."""
    for name in (*_STRICT, *(_LOOSE if run.runs(_LATE) is not False else ())):
        at = said(document, name)
        if at is not None and at.value not in (None, "", "None") and "$" not in str(at.value):
            yield from _read(name, at)
    yield from _instruction(document)
    yield from _lost(document)
    if run.runs(_LATE) is not False:
        yield from _numbers(document)


def _read(name: str, at: Place) -> Iterator[Finding]:
    text = at.value
    if isinstance(text, str) and text.strip().startswith(("{", "[")):
        if name in _STRICT and _is_repr(text):
            yield _finding(at, f"{name} holds the text of an object in Python", "write JSON")
            return
        found = _parsed(text, is_strict=name in _STRICT)
        if found is None:
            yield _finding(at, f"{name} is no JSON", "write JSON, or the path of a file")
            return
        text = found
    yield from _kind(name, at, text)


def _is_repr(text: str) -> bool:
    return "ast." in text or "ast object at" in text.lower()


def _parsed(text: str, *, is_strict: bool) -> Any:
    """The value of a text; None if it cannot be parsed."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return None if is_strict else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


def _kind(name: str, at: Place, value: Any) -> Iterator[Finding]:
    """A mapping instead of a list, or a list instead of a mapping."""
    if name == "peft_lora_target_modules":
        if isinstance(value, dict):
            yield _finding(at, f"{name} is a mapping, and no list of names", "write a list")
        elif isinstance(value, list) and not all(isinstance(e, str | None) for e in value):
            yield _finding(at, f"{name} holds what is no name", "write names alone")
    elif name in _MAPPINGS and isinstance(value, list) and at.value is not value:
        yield _finding(at, f"{name} is a list, and no mapping", "write a mapping")
    elif name in _MAPPINGS and isinstance(value, str) and not _PATHS.search(value):
        yield _finding(at, f"{name} is the word {value}, and no mapping", "write JSON")
    elif name.startswith("sdnq_modules_to") and not _is_names(value):
        yield _finding(at, f"{name} is no list of names", "write a list of names")


def _is_names(value: Any) -> bool:
    """Whether it is a text with names separated by commas, or a list of names."""
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return isinstance(value, str) or is_list


def _lost(document: Document) -> Iterator[Finding]:
    """A mapping that does not become a flag, so that training ignores it."""
    for at in (said(document, name) for name in _LOST):
        if at is not None and isinstance(at.value, dict) and at.value:
            yield Finding(
                f"{at.path} is a mapping, and is not passed on",
                (at.key_label("not read"),),
                ("a mapping becomes no flag: training continues without it",),
                "write it as the text of JSON, or name a file that holds it",
                severity="warning",
                consequence="silent",
            )


def _instruction(document: Document) -> Iterator[Finding]:
    at = said(document, "sana_complex_human_instruction")
    text = at.value if at is not None and family(document) == "sana" else None
    if at is None or not isinstance(text, str) or not text.strip().startswith("{"):
        return
    yield _finding(at, f"{at.path} is a mapping", "write a list of sentences")


def _numbers(document: Document) -> Iterator[Finding]:
    strength = said(document, "validation_adapter_strength")
    if strength is not None and amount(strength) == 0:
        yield _finding(strength, "an adapter of strength 0 changes nothing", "remove it")
    low = said(document, "disk_low_threshold")
    text = str(low.value).strip() if low is not None else ""
    if low is not None and text not in ("", "None") and not _SIZE.fullmatch(text):
        yield _finding(low, f"disk_low_threshold cannot be {low.value}", "write a size, as 100G")


def _finding(at: Place, message: str, remedy: str) -> Finding:
    return Finding(message, (at.label("refused"),), (), remedy)
