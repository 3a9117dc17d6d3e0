"""Arguments of trainer calls that clash with the trainer's configuration."""

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tunec.compiler.frontend.python_calls import Call, Calls
from tunec.compiler.lints.checks.keys.trainer_calls import scripts_of
from tunec.compiler.lints.conditions import is_checked, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place, also
from tunec.compiler.lints.python_files import calls_of
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.targets.huggingface.rules.calls import READS, given_a_stream, maker, origin, streams

_OF_TRANSFORMERS: Final = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
_EVALUATED: Final = "transformers>=4.46"
"""transformers 4.46.0 to 5.23.0 trainer.py `Trainer.__init__`; before, the first evaluation
fails."""
_SCORED: Final = "trl>=0.29"
"""trl 0.29.1 to 1.16.0 trainer/reward_trainer.py `RewardTrainer.__init__`."""
_TAKEN: Final = "trl>=1.8"
"""trl 1.8.0 to 1.16.0 trainer/*_trainer.py `__init__`: "your model is already instantiated". The
first two raise a ValueError, the others log it."""
_REFUSING: Final = ("DPOTrainer", "KTOTrainer")
_IGNORING: Final = ("SFTTrainer", "GRPOTrainer", "RLOOTrainer", "RewardTrainer")
_ADAPTED: Final = "trl>=0.27"
"""trl 0.27.1 to 1.16.0 `__init__` of these trainers; earlier ones merge the first adapter into the
base."""
_ADAPTING: Final = ("SFTTrainer", "DPOTrainer", "GRPOTrainer", "RLOOTrainer", "RewardTrainer")
_MAKES_ADAPTER: Final = ("peft.get_peft_model", "peft.PeftModel.from_pretrained")
_STREAMED: Final = "trl>=0.29"
"""trl 0.29.1 to 1.16.0 trainer/dpo_trainer.py `_precompute_ref_logps`; KTO's since 1.8."""
_SET_LATER: Final = re.compile(r"\.eval_dataset\s*=|\beval_dataset\s*\]\s*=|get_eval_dataloader")
_LOADED: Final = "AutoModelForSequenceClassification.from_pretrained"


class _Clash(NamedTuple):
    """An argument that a trainer refuses beside a setting that is on."""

    argument: str
    label: str
    section: str
    key: str
    refused: str
    title: str
    why: str
    help: str


_CLASHES: Final = {
    # trl 0.29.1 to 1.16.0 trainer/dpo_trainer.py `DPOTrainer.__init__`
    "DPOTrainer": _Clash(
        *("peft_config", "an adapter", "dpo", "sync_ref_model", "trl>=0.29"),
        "TRL refuses sync_ref_model beside an adapter",
        "with an adapter the reference is the base itself: nothing to copy",
        "remove sync_ref_model, or train all weights",
    ),
    # trl 0.18.1 to 1.16.0 trainer/sft_trainer.py `SFTTrainer.__init__`; 0.17.0 does not ask
    "SFTTrainer": _Clash(
        *("formatting_func", "one text", "sft", "completion_only_loss", "trl>=0.18"),
        "SFTTrainer refuses formatting_func beside completion_only_loss",
        "it makes one text of prompt and completion, which have no border",
        "remove formatting_func and keep the columns prompt and completion, or train on both",
    ),
}


@rule(
    "error",
    "init",
    consumers=("transformers", "trl"),
    reads=(
        *keys("trainer", "eval_strategy", "evaluation_strategy"),
        *READS,
        *(f"{kind}:*" for kind in TRL),
    ),
)
def trainer_call_refused(run: LintContext) -> Iterator[Finding]:
    """A trainer's call lacks an argument that its configuration needs, or has a refused one."""
    yield from given_a_stream(run)
    for document in scripts_of(run):
        calls = calls_of(document.name, document.text)
        if calls is not None:
            yield from _never_evaluated(run, document, calls)
            for call in calls.found:
                if call.package == "trl":
                    yield from _of_trl(run, document, call, calls)


def _of_trl(run: LintContext, document: Document, call: Call, calls: Calls) -> Iterator[Finding]:
    if call.name in _CLASHES:
        yield from _beside(run, document, call)
    if call.name == "RewardTrainer":
        yield from _scored(run, document, call, calls)
    yield from _quantised(run, document, call, calls)
    if call.name in _ADAPTING:
        yield from _adapted_twice(run, document, call, calls)
    if call.name == "DPOTrainer":
        yield from _streamed(run, call, calls)


def _never_evaluated(run: LintContext, document: Document, calls: Calls) -> Iterator[Finding]:
    """Evaluation is requested, and no trainer of the file is given evaluation data."""
    mine = [call for call in calls.found if call.name.endswith("Trainer")]
    if not mine or not all(_has_no_data(call) for call in mine):
        return
    if _SET_LATER.search(document.text):
        return
    asked = run.said("trainer", "eval_strategy", "evaluation_strategy")
    if asked is None or asked.document.is_view or asked.value not in ("steps", "epoch"):
        return
    is_early = run.runs(_EVALUATED) is not False
    given = mine[0].fields.get("eval_dataset")
    other = None if given is None else Place(document, "eval_dataset", given)
    yield Finding(
        f"{asked.path} is {asked.value}, and {mine[0].name} gets no eval_dataset",
        (asked.label("asked for"), *also(other, "no data")),
        (
            f"{mine[0].name} refuses the strategy without data to evaluate"
            if is_early
            else "the first evaluation fails: it requires an eval_dataset",
        ),
        f"give eval_dataset to {mine[0].name}, or write {asked.path}: no",
        consequence=None if is_early else "step",
    )


def _has_no_data(call: Call) -> bool:
    origin = f"{call.package}.{call.name}"
    if origin not in _OF_TRANSFORMERS or call.is_open or call.positional:
        return False
    return not call.gives("eval_dataset")


def _is_none(expression: object) -> bool:
    return getattr(expression, "value", "") is None


def _beside(run: LintContext, document: Document, call: Call) -> Iterator[Finding]:
    """An argument of the call that the trainer refuses beside a setting."""
    clash = _CLASHES[call.name]
    given = next((each for each in call.site.call.keywords if each.arg == clash.argument), None)
    asked = run.said(clash.section, clash.key)
    if given is None or _is_none(given.value) or asked is None or asked.value is not True:
        return
    if is_checked(run, clash.refused):
        node = call.fields.get(clash.argument)
        at = Place(document, clash.argument, node) if node else None
        yield Finding(
            clash.title,
            (asked.label("refused"), *also(at, clash.label)),
            notes(run, clash.why, clash.refused),
            clash.help,
            severity=severity(run, clash.refused),
        )


def _scored(run: LintContext, document: Document, call: Call, calls: Calls) -> Iterator[Finding]:
    """A reward model with more than one output."""
    name = calls.given(call, "model")
    loaded = [each for each in calls.found if each.origin.endswith(_LOADED)]
    mine = [each for each in loaded if name is not None and name in each.site.targets]
    if len(mine) != 1 or not is_checked(run, _SCORED):
        return
    (model,) = mine
    labels = model.fields.get("num_labels")
    at = None if labels is None else Place(document, "num_labels", labels)
    if at is not None and isinstance(at.value, int) and at.value != 1:
        yield Finding(
            f"RewardTrainer refuses num_labels={at.value}",
            (at.label("refused"),),
            notes(run, "the reward of a text is one number", _SCORED),
            "write num_labels=1",
            severity=severity(run, _SCORED),
        )


def _quantised(run: LintContext, document: Document, call: Call, calls: Calls) -> Iterator[Finding]:
    """A quantization for a model that the script has loaded without it."""
    given = next((e for e in call.site.call.keywords if e.arg == "quantization_config"), None)
    name = calls.given(call, "model")
    loads = [e for e in calls.found if e.name == "from_pretrained" and name in e.site.targets]
    node = call.fields.get("quantization_config")
    is_known = call.name in (*_REFUSING, *_IGNORING) and len(loads) == 1 and is_checked(run, _TAKEN)
    if not is_known or node is None or given is None or _is_none(given.value):
        return
    is_refused = call.name in _REFUSING
    why = "TRL quantises a model only while it loads it, from a name that is a text"
    yield Finding(
        f"{call.name} gets quantization_config, and {name} is loaded already",
        (
            Place(document, "quantization_config", node).label(
                "refused" if is_refused else "without effect"
            ),
        ),
        notes(run, why, _TAKEN),
        "give quantization_config to from_pretrained instead",
        severity=severity(run, _TAKEN) if is_refused else "warning",
        consequence=None if is_refused else "silent",
    )


def _adapted_twice(
    run: LintContext, document: Document, call: Call, calls: Calls
) -> Iterator[Finding]:
    """An adapter for a model that the script has adapted already."""
    node, made = call.fields.get("peft_config"), maker(calls, call, "model")
    if node is None or made is None or origin(calls, made) not in _MAKES_ADAPTER:
        return
    given = next(e.value for e in call.site.call.keywords if e.arg == "peft_config")
    is_config = isinstance(given, ast.Call) or maker(calls, call, "peft_config") is not None
    if is_config and is_checked(run, _ADAPTED):
        yield Finding(
            f"{call.name} gets a model with an adapter, and peft_config for a second one",
            (Place(document, "peft_config", node).label("a second adapter"),),
            (
                f"line {made.call.lineno} of the script makes the first one",
                *notes(run, "the trainer refuses a PeftModel beside peft_config", _ADAPTED),
            ),
            "give either the plain model and peft_config, or the adapted model alone",
            severity=severity(run, _ADAPTED),
        )


def _streamed(run: LintContext, call: Call, calls: Calls) -> Iterator[Finding]:
    """References that are computed before training, for data that are read once."""
    asked, made = run.said("dpo", "precompute_ref_log_probs"), maker(calls, call, "train_dataset")
    if asked is None or asked.value is not True or not streams(calls, made):
        return
    if is_checked(run, _STREAMED):
        yield Finding(
            "precompute_ref_log_probs is refused for a data set that is streamed",
            (asked.label("refused"),),
            notes(run, "a stream has no length, and is not read twice", _STREAMED),
            "write precompute_ref_log_probs=False, or load the data without streaming",
            severity=severity(run, _STREAMED),
        )
