"""Whether a model's tokenizer has the chat template that a trainer forms conversations by.

Most base models have none, and a run on conversations ends at its first sample.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.data_columns import first_record
from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.frontend.model_folders import has_chat_template
from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import Artifact, Target
from tunec.schemas.models.catalogue import UnknownName, card
from tunec.schemas.models.chat_templates import lacks_template
from tunec.schemas.terms import PLAIN_TEMPLATE

_SLOT: Final = "data.chat_template"
_SAYING_DATA: Final = frozenset({"data.train", "data.format"})
_OF_TOKENIZER: Final = ("", None, "tokenizer_default")
_TURNS: Final = frozenset({"chat", "turns"})
_TUNED: Final = ("-Instruct", "-it", "-Chat", "-Instruct-hf", "-chat-hf")
"""Ends of names that makers give to the models which they tuned to conversations."""


def missing_template(
    loaded: Loaded, plan: Plan, asked: tuple[Target, Version], files: Iterable[Artifact]
) -> Iterator[Diagnostic]:
    """The fault of conversations that a target's program has no template for."""
    target, version = asked
    key = target.template_key(plan, version)
    is_settled = not key or plan.data.chat_template is not None or _reads_others(loaded, target)
    if is_settled or any(_at(each.values, key) not in _OF_TOKENIZER for each in files):
        return
    source = _absence(plan.model.path, loaded.base)
    data = _conversations(loaded, plan, target) if source else None
    if source is None or data is None:
        return
    named = _remedies(plan, target, key)
    yield Diagnostic(
        "E0807",
        "error",
        f"the tokenizer of {plan.model.path} has no chat template, and {target.name} forms the "
        f"conversations of {data} by one",
        (Label("these conversations", path="data.train"),),
        notes=(source,),
        help=", or ".join(named),
    )


def _reads_others(loaded: Loaded, target: Target) -> bool:
    """Whether the spec passes data sets of the program's own form through."""
    passed = loaded.spec.extra.get(target.name, {}) if loaded.spec is not None else {}
    rows = (row for file in target.files for row in file.entries) if passed else ()
    return any(set(row.keys) & passed.keys() for row in rows if _SAYING_DATA & {*row.slots})


def _at(values: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key, in a document with keys of either form."""
    if key in values:
        return values[key]
    head, _, rest = key.partition(".")
    inner = values.get(head)
    return _at(inner, rest) if rest and isinstance(inner, Mapping) else None


def _absence(model: str, base: Path) -> str | None:
    """How it is known that the model's tokenizer has no template; None: it has, or may have."""
    known = has_chat_template(str(base / model) if (base / model).is_dir() else model)
    if known is not None:
        return None if known else f"the tokenizer_config.json of {model} names none"
    source = lacks_template(model)
    return source and f"its tokenizer_config.json names none: {source}"


def _conversations(loaded: Loaded, plan: Plan, target: Target) -> str | None:
    """The first training data that holds conversations, by its first record or by its format."""
    spec = loaded.spec
    said = spec.data.format if spec is not None else None
    # What a reward needs says nothing of data that was not read.
    kinds = {each.kind for each in target.records(plan) if not each.why}
    is_said = said in ("messages", "sharegpt") or (bool(kinds) and kinds <= _TURNS)
    for path in training_data(plan):
        record = first_record(path, loaded.base)
        if is_said if record is None else _holds_turns(record):
            return path
    return None


def _holds_turns(record: Mapping[str, Any]) -> bool:
    """Whether a column of a record is a list of messages or turns."""
    return any(
        isinstance(value, list) and value and isinstance(value[0], Mapping) and _is_turn(value[0])
        for value in record.values()
    )


def _is_turn(said: Mapping[str, Any]) -> bool:
    return "role" in said or "from" in said


def _remedies(plan: Plan, target: Target, key: str) -> Iterator[str]:
    tuned = _tuned(plan.model.path)
    yield f"train {tuned}" if tuned else "train a model that was tuned to conversations"
    saying = [file for file in target.files if any(_SLOT in row.slots for row in file.entries)]
    if any(file.when(plan) for file in saying):
        yield f"write `chat_template: {PLAIN_TEMPLATE}` under `data`"
    elif not saying:
        yield f"name a template by its own key: `extra: {{{target.name}: {{{key}: ...}}}}`"


def _tuned(model: str) -> str | None:
    """The model that its maker tuned to conversations from this one, by its name."""
    return next(filter(_is_known, (f"{model}{ending}" for ending in _TUNED)), None)


def _is_known(model: str) -> bool:
    try:
        card(model)
    except UnknownName:
        return False
    return True
