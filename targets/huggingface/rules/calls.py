"""Calls of trainers in scripts that lack what their data or their callbacks need."""

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.frontend.python_calls import Call, Calls
from tunec.compiler.frontend.python_names import Site
from tunec.compiler.lints.checks.keys.trainer_calls import scripts_of
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.python_files import calls_of
from tunec.compiler.lints.rule import Finding, rule

_TRAINERS: Final = frozenset(
    {
        *("transformers.Trainer", "transformers.Seq2SeqTrainer", "trl.SFTTrainer"),
        *("trl.DPOTrainer", "trl.RewardTrainer"),
    }
)
_LOADS: Final = "datasets.load_dataset"
_STOPS: Final = "EarlyStoppingCallback"
READS: Final = ("hf:*", "sft:*", "dpo:*", "reward:*")
_PACKAGES: Final = ("transformers.", "trl.")
_CLASSES: Final = ("TrainingArguments", "SFTConfig", "DPOConfig", "RewardConfig")
_BEST: Final = "load_best_model_at_end"
_COMPARED: Final = frozenset({"metric_for_best_model", "lr_scheduler_type"})
"""Arguments by which a metric is compared; some schedules make the loss one (transformers 4.46.3 to
5.23.0 training_args.py)."""


def maker(calls: Calls, call: Call, argument: str) -> Site | None:
    """The last call before this one, under its conditions, that makes what an argument holds."""
    name = calls.given(call, argument)
    before = [
        each
        for each in calls.module.sites
        if name is not None
        and name in each.targets
        and each.block is call.site.block
        and each.call.lineno < call.site.call.lineno
    ]
    return before[-1] if before and before[-1].arms == call.site.arms else None


def made_for(calls: Calls, call: Call, argument: str) -> Site | None:
    """The call that makes an argument: inline, or before this one and held by a variable."""
    inline, site = _keyword(call, argument), maker(calls, call, argument)
    mine = (each for each in calls.module.sites if each is site or each.call is inline)
    return next(mine, None)


def origin(calls: Calls, site: Site) -> str | None:
    """The name of what a site calls, by its imports."""
    return calls.values.origin_of(site.call.func, site.scope)


def streams(calls: Calls, site: Site | None) -> bool:
    """Whether a site loads a data set as a stream, and nothing else."""
    if site is None or origin(calls, site) != _LOADS:
        return False
    given = next((each.value for each in site.call.keywords if each.arg == "streaming"), None)
    return isinstance(given, ast.Constant) and given.value is True


Given = Mapping[str, ast.expr]
"""The keywords of a call, each with its expression."""


def _trainers(run: LintContext) -> Iterator[tuple[Document, Calls, Call, Given]]:
    """Each trainer's call, with the keywords of its arguments, if all of these are seen."""
    for document in scripts_of(run):
        calls = calls_of(document.name, document.text)
        for call in () if calls is None else calls.found:
            if (
                calls is not None
                and f"{call.package}.{call.name}" in _TRAINERS
                and not call.is_open
            ):
                given = _arguments(calls, call)
                if given is not None:
                    yield document, calls, call, given


def _arguments(calls: Calls, call: Call) -> Given | None:
    """The keywords of a trainer's `args`, which is made inline or held by a variable."""
    made = made_for(calls, call, "args")
    name = "" if made is None else origin(calls, made) or ""
    is_its = name.startswith(_PACKAGES) and name.endswith(_CLASSES)
    if (
        made is None
        or not is_its
        or made.call.args
        or any(e.arg is None for e in made.call.keywords)
    ):
        return None
    return {each.arg: each.value for each in made.call.keywords if each.arg is not None}


def _keyword(call: Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.site.call.keywords if each.arg == name), None)


def given_a_stream(run: LintContext) -> Iterator[Finding]:
    """A trainer gets a stream, and no number of steps."""
    for document, calls, call, given in _trainers(run):
        node = call.fields.get("train_dataset")
        is_set = {"max_steps"} & {*given, *calls.module.attributes}
        if node is None or is_set or not streams(calls, maker(calls, call, "train_dataset")):
            continue
        yield Finding(
            f"{call.name} gets a stream, and max_steps is not set",
            (Place(document, "train_dataset", node).label("of no known length"),),
            ("ValueError: the train_dataset does not implement __len__",),
            "give max_steps to the trainer's arguments",
        )


@rule("error", "init", consumers=("transformers",), reads=READS)
def early_stopping_without_metric(run: LintContext) -> Iterator[Finding]:
    """EarlyStoppingCallback is given, and no metric is compared."""
    for document, calls, call, given in _trainers(run):
        node = call.fields.get("callbacks")
        if node is None or not _stops(_keyword(call, "callbacks")):
            continue
        best = given.get(_BEST)
        is_off = best is None or (isinstance(best, ast.Constant) and best.value is False)
        later = calls.module.attributes
        if is_off and _COMPARED.isdisjoint({*given, *later}) and _BEST not in later:
            yield Finding(
                "EarlyStoppingCallback has no metric to compare, and ends the run",
                (Place(document, "callbacks", node).label("stops by the best metric"),),
                ("AssertionError when training begins: requires metric_for_best_model",),
                "write load_best_model_at_end=True in the arguments, which compares the loss",
            )


def _stops(given: ast.expr | None) -> bool:
    """Whether a list of callbacks, as written, holds one that stops early."""
    made = [each for each in getattr(given, "elts", ()) if isinstance(each, ast.Call)]
    names = (getattr(each.func, "attr", getattr(each.func, "id", "")) for each in made)
    return _STOPS in names
