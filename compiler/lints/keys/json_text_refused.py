"""A mapping that is given as text is no JSON."""

import json
from collections.abc import Iterator

from tunec.compiler.lints.folded import MAPPINGS
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        for key in (*MAPPINGS, "deepspeed"):
            place = document.get(key)
            text = None if place is None else place.word
            if place is None or document.is_view or text is None or not text.startswith("{"):
                continue
            why = _fault(text)
            if why is not None and "$" not in text:
                yield Finding(
                    f"{key} is no JSON: {why}",
                    (place.label("refused"),),
                    (
                        "text that begins with a brace is read as JSON",
                        *(("this is Python's way to write it",) if _is_python(text) else ()),
                    ),
                    f"write '{_as_json(text)}'" if _is_python(text) else "write it as JSON",
                )


def _fault(text: str) -> str | None:
    try:
        found = json.loads(text)
    except ValueError as fault:
        return str(fault).partition(":")[0].lower()
    return None if isinstance(found, dict) else "it is no mapping"


def _is_python(text: str) -> bool:
    return _fault(_as_json(text)) is None


def _as_json(text: str) -> str:
    """The text with Python's quotes and words changed for JSON's."""
    changed = text.replace("'", '"')
    for old, new in (("True", "true"), ("False", "false"), ("None", "null")):
        changed = changed.replace(old, new)
    return changed


RULE = Rule(
    name="json-text-refused",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments.__post_init__`: "
            "json.loads of each of _VALID_DICT_FIELDS that begins with a brace"
        ),
    ),
    check=_check,
)
