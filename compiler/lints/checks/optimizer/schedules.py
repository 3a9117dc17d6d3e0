"""Arguments of a schedule, including warm-up."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.training_loop import (
    arguments_of,
    is_number,
    is_overridden,
    is_positive,
    is_whole,
    total_steps,
    warmup_place,
    warmup_steps,
)
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.frozen import replace

_WITH_MIN: Final = ("cosine_with_min_lr", "cosine_warmup_with_min_lr")
_END = 1e-7


@rule(
    "error",
    "init",
    consumers=("transformers",),
    reads=(*keys("trainer", "lr_scheduler_type", "lr_scheduler_kwargs"), "axolotl:lr_scheduler"),
)
def schedule_argument_missing(run: LintContext) -> Iterator[Finding]:
    """A schedule is missing arguments that it requires."""
    for document in run.of("trainer", "axolotl"):
        kind = document.get("lr_scheduler" if document.kind == "axolotl" else "lr_scheduler_type")
        if kind is None or document.is_view or is_overridden(run):
            continue
        given = document.get("lr_scheduler_kwargs")
        arguments = arguments_of(given)
        is_hidden = any(each.startswith("lr_scheduler_kwargs") for each in document.unknown)
        is_own = run.own.declares("min_lr_ratio", as_flag=True)
        is_own = is_own or run.own.sets("lr_scheduler_kwargs")
        if arguments is None or is_hidden or is_own:
            continue  # a class of one's own may make the arguments of it
        why = _missing(run, document, kind.value, arguments)
        if why is not None:
            yield _missing_finding(kind, document.get("lr_scheduler_kwargs.lr_end") or given, *why)


def _missing(
    run: LintContext, document: Document, kind: Any, arguments: dict[str, Any]
) -> tuple[str, str] | None:
    lows = [key for key in ("min_lr", "min_lr_rate") if arguments.get(key) is not None]
    if kind in _WITH_MIN and len(lows) != 1:
        what = "neither min_lr nor min_lr_rate" if not lows else "both min_lr and min_lr_rate"
        return f"{kind} is given {what}", "write lr_scheduler_kwargs: {min_lr_rate: 0.1}"
    if kind == "warmup_stable_decay":
        needs = ["num_decay_steps"]
        if run.runs("transformers<4.51"):
            needs.append("num_stable_steps")
        absent = [key for key in needs if key not in arguments]
        if absent:
            names = " and ".join(absent)
            return f"{kind} needs {names}", f"write {names} in lr_scheduler_kwargs"
    rate = document.value("learning_rate")
    end = arguments.get("lr_end", _END)
    if kind == "polynomial" and is_number(rate) and is_number(end) and rate <= end:
        return f"polynomial from {rate:g} down to {end:g}", "write a smaller lr_end"
    return None


def _missing_finding(kind: Place, given: Place | None, message: str, mend: str) -> Finding:
    labels = [given.label("", primary=False)] if given is not None else []
    return Finding(
        message,
        (kind.label("needs it"), *labels),
        ("it is built when training starts, after the model and the data are loaded",),
        mend,
    )


_CYCLES: Final = ("num_cycles", "last_epoch")
_TAKEN: Final[Mapping[str, tuple[str, ...]]] = {
    "linear": ("last_epoch",),
    "cosine": _CYCLES,
    "cosine_with_restarts": _CYCLES,
    "polynomial": ("lr_end", "power", "last_epoch"),
    "constant": (),
    "constant_with_warmup": (),
    "inverse_sqrt": ("timescale", "last_epoch"),
    "cosine_with_min_lr": ("min_lr", "min_lr_rate", *_CYCLES),
    "cosine_warmup_with_min_lr": ("min_lr", "min_lr_rate", "warmup_lr_rate", *_CYCLES),
    "warmup_stable_decay": (
        *("num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio"),
        *_CYCLES,
    ),
}
"""transformers 4.40.2 to 5.23.0 optimization.py: the signatures of `get_*_schedule*`."""
_DROPPED: Final = ("constant", "constant_with_warmup")


@rule(
    "error",
    "init",
    consumers=("transformers",),
    reads=keys("trainer", "lr_scheduler_type", "lr_scheduler_kwargs"),
)
def schedule_argument_unknown(run: LintContext) -> Iterator[Finding]:
    """An argument that the schedule does not have."""
    for document in run.of("trainer"):
        given = document.get("lr_scheduler_kwargs")
        if given is None or document.is_view or is_overridden(run):
            continue
        kind = document.get("lr_scheduler_type")
        name = "linear" if kind is None else kind.value
        arguments = arguments_of(given)
        if (
            not isinstance(name, str)
            or name not in _TAKEN
            or not arguments
            or "lr_scheduler_type" in document.unknown
        ):
            continue
        wrong = [key for key in arguments if key not in _TAKEN[name]]
        if wrong:
            at = document.get(f"lr_scheduler_kwargs.{wrong[0]}") or given
            yield _unknown_finding(name, wrong, at, kind)


def _unknown_finding(name: str, wrong: list[str], at: Place, kind: Place | None) -> Finding:
    homes = [each for each, keys in _TAKEN.items() if wrong[0] in keys]
    ignored = name in _DROPPED
    hint = did_you_mean(nearest(wrong[0], _TAKEN[name]))
    return Finding(
        f"the schedule {name} has no argument {quoted(wrong, 'and')}",
        (at.key_label("dropped" if ignored else "refused"), *also(kind)),
        (
            "arguments of this schedule are never passed on"
            if ignored
            else "TypeError: got an unexpected keyword argument",
        ),
        hint or (f"{quoted(homes)} has it" if homes else "remove it"),
        consequence="silent" if ignored else "init",
        severity="warning" if ignored else None,
    )


_FORMS: Final = ("linear", "cosine", "1-sqrt")
_WSD: Final = "warmup_stable_decay"
_UP: Final = "the rate rises to its end instead of falling"

Fault = tuple[str, str, Consequence]
"""What is wrong, why, and the consequence."""


@rule(
    "error",
    "init",
    consumers=("transformers",),
    reads=keys("trainer", "lr_scheduler_type", "lr_scheduler_kwargs"),
)
def schedule_argument_unusable(run: LintContext) -> Iterator[Finding]:
    """With this argument a schedule does not do what its name promises."""
    for document in run.of("trainer"):
        kind, given = document.get("lr_scheduler_type"), document.get("lr_scheduler_kwargs")
        arguments = arguments_of(given)
        if kind is None or given is None or not arguments or is_overridden(run):
            continue
        for key, fault in _faults(run, document, kind.value, arguments):
            at = document.get(f"lr_scheduler_kwargs.{key}") or given
            yield _unusable_finding(at, kind, key, fault)


def _faults(
    run: LintContext, document: Document, kind: Any, arguments: dict[str, Any]
) -> Iterator[tuple[str, Fault]]:
    if kind in _WITH_MIN:
        yield from _of_floor(document, arguments)
    if kind == _WSD:
        for key in ("warmup_type", "decay_type"):
            if arguments.get(key, "linear") not in _FORMS:
                why = f"taken: {', '.join(_FORMS)}"
                yield key, (f"{key} cannot be {arguments[key]}", why, "init")
        yield from _of_lengths(run, arguments)


def _of_floor(document: Document, arguments: dict[str, Any]) -> Iterator[tuple[str, Fault]]:
    rate, low = document.value("learning_rate"), arguments.get("min_lr")
    if is_number(low) and is_number(rate) and low > rate > 0:
        yield "min_lr", (f"min_lr {low:g} lies above learning_rate {rate:g}", _UP, "silent")
    share = arguments.get("min_lr_rate")
    if is_number(share) and share > 1:
        why = f"it is a share of the learning rate: {_UP}"
        yield "min_lr_rate", (f"min_lr_rate {share:g} is above 1", why, "silent")


def _of_lengths(run: LintContext, arguments: dict[str, Any]) -> Iterator[tuple[str, Fault]]:
    total, decay = total_steps(run), arguments.get("num_decay_steps")
    if total is None or not is_whole(decay):
        return
    warm = warmup_steps(run, total.value)
    stable = arguments.get("num_stable_steps", 0)
    whole = decay + (warm.value if warm else 0) + (stable if is_whole(stable) else 0)
    if whole > total.value:
        message = f"phases of {whole} steps do not end in {total.value} steps of training"
        yield (
            "num_decay_steps",
            (message, "the rate has not come down when training ends", "silent"),
        )


_HELPS: Final = {
    "min_lr": "write a min_lr below learning_rate",
    "min_lr_rate": "write a share below 1, such as 0.1",
    "num_decay_steps": "write fewer steps of decay, or of what comes before",
    **dict.fromkeys(("warmup_type", "decay_type"), f"write {_FORMS[0]}"),
}


def _unusable_finding(place: Place, kind: Place, key: str, fault: Fault) -> Finding:
    message, why, consequence = fault
    return Finding(
        f"{kind.value}: {message}",
        (place.label("refused" if consequence != "silent" else ""), kind.label("", primary=False)),
        (why,),
        _HELPS.get(key, "write another value"),
        severity="warning" if consequence == "silent" else None,
        consequence=consequence,
    )


@rule("warning", "silent", consumers=("transformers<5.15",), reads=("trainer:warmup_ratio",))
def warmup_given_twice(run: LintContext) -> Iterator[Finding]:
    """Warm-up is set both in steps and as a ratio."""
    for document in run.of("trainer"):
        steps, share = document.get("warmup_steps"), document.get("warmup_ratio")
        if steps is None or share is None or document.is_view:
            continue  # Axolotl's own check refuses the pair
        if is_positive(steps.value) and is_positive(share.value):
            last = run.runs("transformers>=5.0")
            used, unused = (share, steps) if last else (steps, share)
            yield Finding(
                f"{unused.path} {unused.value} does nothing beside {used.path} {used.value}",
                (unused.label("not used"), used.label("decides", primary=False)),
                (
                    "from 5.0 on the share overwrites the steps"
                    if last
                    else "before 5.0 steps win, and a line of the log says so",
                ),
                f"remove {unused.path}",
                Fix((unused.removed(),), "safe" if last is not None else "unsafe"),
            )


_COSINE: Final = "WarmupCosineLR"
_TRIAL: Final = 5
"""So many steps train no model: they try out whether the run starts."""
_DIVIDED: Final[Mapping[str, Any]] = {
    "notes": ("ZeroDivisionError in the first step behind the warm-up: it divides by the rest",),
    "severity": None,
    "consequence": "step",
}


@rule(
    "error",
    "silent",
    consumers=("transformers", "deepspeed"),
    reads=(
        *keys("trainer", "warmup_steps", "warmup_ratio"),
        "deepspeed:scheduler.params.warmup_num_steps",
    ),
)
def warmup_longer_than_training(run: LintContext) -> Iterator[Finding]:
    """Warm-up does not end before training does."""
    total = total_steps(run)
    warm = warmup_steps(run, total.value if total else None)
    if total and warm and warm.value >= total.value and not is_overridden(run):
        found = _finding(warm.place, warm.value, total.place, total.value)
        yield replace(found, severity="note") if total.value <= _TRIAL else found
    params = "scheduler.params."
    first = run.effective("deepspeed", f"{params}warmup_num_steps")
    last = run.effective("deepspeed", f"{params}total_num_steps")
    if not is_whole(first.value) or not is_whole(last.value) or first.value < last.value:
        return
    if first.place and last.place:
        found = _finding(first.place, first.value, last.place, last.value)
        is_zero = first.value == last.value and run.runs("deepspeed<0.19") is True
        is_cosine = run.effective("deepspeed", "scheduler.type").value == _COSINE
        yield replace(found, **_DIVIDED) if is_cosine and is_zero else found


def _finding(first: Place, warm: int, last: Place, total: int) -> Finding:
    return Finding(
        f"{warm} steps of warm-up do not end in {total} steps of training",
        (first.label("steps of rising rate"), last.label("all steps", primary=False)),
        (f"the rate never falls; its highest value comes at step {warm} or not at all",),
        f"write {max(total * 3 // 100, 1)}, which is 3 % of all steps",
        sum=(Term("warm-up", warm, "steps"), Term("training", total, "steps")),
        severity="warning",
    )


_NONE: Final = ("constant", "reduce_lr_on_plateau", "greedy")


@rule(
    "warning",
    "silent",
    consumers=("transformers",),
    reads=keys("trainer", "warmup_steps", "warmup_ratio"),
)
def warmup_of_a_constant_rate(run: LintContext) -> Iterator[Finding]:
    """Warm-up is set for a schedule that has none."""
    kind, warm = run.said("trainer", "lr_scheduler_type"), warmup_place(run)
    if kind is None or warm is None or kind.value not in _NONE or is_overridden(run):
        return
    fix = Fix((kind.replaced("constant_with_warmup"),), "unsafe")
    yield Finding(
        f"{warm.path} {warm.value} does nothing: {kind.value} has no warm-up",
        (warm.label("does nothing"), kind.label("", primary=False)),
        ("the rate is at its full height from the first step",),
        "write constant_with_warmup" if kind.value == "constant" else f"remove {warm.path}",
        fix if kind.value == "constant" else None,
    )
