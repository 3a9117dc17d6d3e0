"""Models that cannot do what the trainer, or an adapter, asks of them."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.analyses.architecture.classifiers import SUFFIXES, has_biased_head
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.python_calls import Call, Calls
from tunec.compiler.lints.checks.keys.trainer_calls import scripts_of
from tunec.compiler.lints.conditions import is_checked, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.python_files import calls_of
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.models.architecture import ClassifierKind
from tunec.targets.huggingface.rules.calls import made_for, origin

_LACKING: Final = (
    ("nemotron_h", re.compile(r"(?i)nemotron-(?:3(?!-8b)|h)\b"), "transformers>=5.3,<5.7"),
    ("jetmoe", re.compile(r"(?i)\bjetmoe\b"), ""),
    ("cpmant", re.compile(r"(?i)\bcpm-ant\b"), ""),
    ("gpt_neox_japanese", re.compile(r"(?i)gpt-neox-japanese"), ""),
)
"""Types of causal models, their names, and the releases in which no class of theirs sets
`supports_gradient_checkpointing`: transformers 4.40.2 to 5.23.0 models/TYPE/modeling_TYPE.py.
Nemotron 3 8B of 2023 is of another type."""


@rule("error", "init", consumers=("transformers",), reads=keys("trainer", "gradient_checkpointing"))
def model_without_checkpointing(run: LintContext) -> Iterator[Finding]:
    """Gradient checkpointing is on for a model whose class does not have it."""
    at = run.said("trainer", "gradient_checkpointing")
    if at is None or at.value is not True:
        return
    card = run.model.card if run.model is not None else None
    mine = None if card is None else card.config.get("model_type")
    name = run.model_name or ""
    for kind, names, releases in _LACKING:
        is_it = mine == kind if mine is not None else names.search(name) is not None
        if is_it and is_checked(run, releases):
            late = f" before transformers {releases.rpartition('<')[2]}" if releases else ""
            yield Finding(
                f"{name or kind} has no gradient checkpointing{late}",
                (at.label("refused"),),
                notes(run, "ValueError before the first step: does not support it", releases),
                "remove gradient_checkpointing" + (", or use a later release" if late else ""),
                severity=severity(run, releases),
            )


_LOADS: Final = {
    f"transformers.AutoModel{end}.from_pretrained": kind for end, kind in SUFFIXES.items()
}
_TASKS: Final = {"sequence-classifier": "SEQ_CLS", "token-classifier": "TOKEN_CLS"}
_BITS: Final = "transformers.BitsAndBytesConfig"
_GIVEN: Final = "quantization_config"
_SKIPPED: Final = "llm_int8_skip_modules"
_SINCE: Final = "transformers>=5"
"""transformers 5.0.0 to 5.23.0 quantizers/base.py `get_keys_to_not_convert` keeps the last
parameter by its name, which is no module's where it is a bias; 4.57.6 keeps the last module."""


@rule("error", "init", consumers=("transformers", "peft"), reads=("model:quantization_config",))
def classifier_head_quantised(run: LintContext) -> Iterator[Finding]:
    """A classifier's new head is quantised with its base, and PEFT is asked to train it."""
    for call, kind, node, calls, document in _loads(run) if is_checked(run, _SINCE) else ():
        if _quantises_all(calls, call) and _trains_head(calls, _TASKS[kind]):
            yield Finding(
                f"the head of {call.holder} is quantised too, and PEFT cannot train it",
                (Place(document, _GIVEN, node).label("also of the new head"),),
                notes(run, "only Tensors of floating point dtype can require gradients", _SINCE),
                f'name the head in BitsAndBytesConfig: `{_SKIPPED}=["classifier"]`',
                severity=severity(run, _SINCE),
            )


def _loads(run: LintContext) -> Iterator[tuple[Call, ClassifierKind, Node, Calls, Document]]:
    """Each call that loads a classifier quantised, whose head has a bias."""
    card = run.model.card if run.model is not None else None
    family = "" if card is None else str(card.config.get("model_type"))
    for document in scripts_of(run):
        calls = calls_of(document.name, document.text)
        for call in () if calls is None else calls.found:
            kind, node = _LOADS.get(call.origin), call.fields.get(_GIVEN)
            if calls is not None and kind and node and has_biased_head(family, kind):
                yield call, kind, node, calls, document


def _quantises_all(calls: Calls, call: Call) -> bool:
    """Whether a model is loaded in 4 or 8 bits, and no module is left out of it."""
    made = made_for(calls, call, _GIVEN)
    if made is None or origin(calls, made) != _BITS:
        return False
    words = {each.arg: each.value for each in made.call.keywords}
    bits = (words.get("load_in_4bit"), words.get("load_in_8bit"))
    is_on = any(isinstance(each, ast.Constant) and each.value is True for each in bits)
    return is_on and None not in words and _SKIPPED not in words


def _trains_head(calls: Calls, task: str) -> bool:
    """Whether adapters are made for a task, whose head PEFT then trains as it is."""
    made = [each for each in calls.module.sites if origin(calls, each) == "peft.LoraConfig"]
    asked = [each.value for site in made for each in site.call.keywords if each.arg == "task_type"]
    return [getattr(each, "attr", getattr(each, "value", None)) for each in asked] == [task]
