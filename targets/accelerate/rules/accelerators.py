"""Rules about calls of `Accelerator` in Python whose arguments are overridden."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.frontend.python_calls import Call, Calls
from tunec.compiler.lints.checks.keys.trainer_calls import scripts_of
from tunec.compiler.lints.conditions import is_checked, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.python_files import calls_of
from tunec.compiler.lints.python_runs import is_accelerator, is_plugin
from tunec.compiler.lints.rule import Finding, keys, rule

_STEPS: Final = "gradient_accumulation_steps"
_OF_FILE: Final = f"deepspeed_config.{_STEPS}"
_OWN: Final = "accelerate<1.8"
"""accelerate 1.7.0 accelerator.py keeps its own number beside the plugin's; `_prepare_deepspeed` of
1.10.1 and later takes the plugin's, and logs so. 1.7.0 to 1.15.0 utils/launch.py
`prepare_deepspeed_cmd_env` sets ACCELERATE_GRADIENT_ACCUMULATION_STEPS, which `Accelerator` reads
before its own argument."""


@rule(
    "error",
    "silent",
    consumers=("accelerate",),
    reads=("model:*", "hf:*", "peft:*", *keys("accelerate", _OF_FILE)),
)
def accumulation_of_accelerator_overridden(run: LintContext) -> Iterator[Finding]:
    """A script's `Accelerator` has another number of accumulation steps than its engine."""
    launched = _launched(run)
    for document in scripts_of(run):
        calls = calls_of(document.name, document.text)
        if calls is not None:
            for call in calls.found:
                if is_accelerator(call.origin) and not call.is_open:
                    yield from _clashes(call, calls, run, document, launched)


def _launched(run: LintContext) -> Place | None:
    """The accumulation steps that the launcher's file passes to the engine."""
    for document in run.of("accelerate"):
        engine, steps = document.get("distributed_type"), document.get(_OF_FILE)
        if engine is not None and engine.value == "DEEPSPEED" and steps is not None:
            return steps if is_whole(steps.value) else None
    return None


def _clashes(
    call: Call, calls: Calls, run: LintContext, document: Document, launched: Place | None
) -> Iterator[Finding]:
    own = call.fields.get(_STEPS)
    place = None if own is None else Place(document, _STEPS, own)
    said = 1 if place is None else place.value
    if not is_whole(said):
        return
    plugin = _plugin(call, calls)
    if plugin is not None and is_checked(run, _OWN):
        node = plugin.fields[_STEPS]
        other = Place(document, _STEPS, node)
        if is_whole(other.value) and other.value != said:
            yield _beside_plugin(other, place, said, run)
    elif not (place is None or launched is None or launched.value == said or _has_plugin(call)):
        yield _beside_file(place, launched)


def _has_plugin(call: Call) -> bool:
    return any(e.arg in ("deepspeed_plugin", "deepspeed_plugins") for e in call.site.call.keywords)


def _plugin(call: Call, calls: Calls) -> Call | None:
    """The plugin that a call is given, if it sets the accumulation steps."""
    name = calls.given(call, "deepspeed_plugin")
    given = next((e.value for e in call.site.call.keywords if e.arg == "deepspeed_plugin"), None)
    for each in calls.found:
        is_it = each.site.call is given or (name is not None and name in each.site.targets)
        if is_it and is_plugin(each.origin) and _STEPS in each.fields:
            return each
    return None


def _beside_plugin(other: Place, own: Place | None, said: int, run: LintContext) -> Finding:
    labels: tuple[Label, ...] = (other.label("of the engine"),)
    if own is not None:
        labels = (own.label("of the loop"), *also(other, "of the engine"))
    return Finding(
        f"Accelerator accumulates over {said} batches, and its DeepSpeedPlugin over {other.value}",
        labels,
        notes(run, "`accumulate` steps and schedules by the first, the engine by the second", _OWN),
        f"give {_STEPS}={other.value} to Accelerator too, or use accelerate 1.8",
        severity=severity(run, _OWN),
    )


def _beside_file(own: Place, launched: Place) -> Finding:
    return Finding(
        f"Accelerator's {_STEPS}={own.value} is overridden by the launcher's file",
        (own.label("not followed"), *also(launched, "in force")),
        (f"under DeepSpeed the launcher hands its own number on, and {launched.value} is taken",),
        f"write {_OF_FILE}: {own.value} in the launcher's file",
    )
