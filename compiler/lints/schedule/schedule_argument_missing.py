"""A schedule without the arguments that it cannot do without."""

from collections.abc import Iterator
from typing import Any

from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import arguments_of, is_overridden

_MIN = ("cosine_with_min_lr", "cosine_warmup_with_min_lr")
_END = 1e-7


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer", "axolotl"):
        kind = document.get("lr_scheduler" if document.kind == "axolotl" else "lr_scheduler_type")
        if kind is None or document.is_view or is_overridden(run):
            continue
        given = document.get("lr_scheduler_kwargs")
        arguments = arguments_of(given)
        if arguments is None or "lr_scheduler_kwargs" in document.unknown:
            continue
        why = _missing(run, document, kind.value, arguments)
        if why is not None:
            yield _finding(kind, document.get("lr_scheduler_kwargs.lr_end") or given, *why)


def _missing(
    run: Run, document: Document, kind: Any, arguments: dict[str, Any]
) -> tuple[str, str] | None:
    lows = [key for key in ("min_lr", "min_lr_rate") if arguments.get(key) is not None]
    if kind in _MIN and len(lows) != 1:
        what = "neither min_lr nor min_lr_rate" if not lows else "both min_lr and min_lr_rate"
        return f"{kind} with {what}", "write lr_scheduler_kwargs: {min_lr_rate: 0.1}"
    if kind == "warmup_stable_decay":
        needs = ["num_decay_steps"]
        if run.runs("transformers<4.51"):
            needs.append("num_stable_steps")
        absent = [key for key in needs if key not in arguments]
        if absent:
            names = " and ".join(absent)
            return f"{kind} without {names}", f"write {names} in lr_scheduler_kwargs"
    rate = document.value("learning_rate")
    end = arguments.get("lr_end", _END)
    if kind == "polynomial" and is_number(rate) and is_number(end) and rate <= end:
        return f"polynomial from {rate:g} down to {end:g}", "write a smaller lr_end"
    return None


def _finding(kind: Place, given: Place | None, message: str, mend: str) -> Finding:
    labels = [given.label("", primary=False)] if given is not None else []
    return Finding(
        message,
        (kind.label("needs it"), *labels),
        ("it is built when training starts, after the model and the data are loaded",),
        mend,
    )


RULE = Rule(
    name="schedule-argument-missing",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 optimization.py "
            "`get_cosine_with_min_lr_schedule_with_warmup`: ValueError, one of min_lr or "
            "min_lr_rate "
            "should be set; `get_polynomial_decay_schedule_with_warmup`: lr_end must be smaller"
        ),
        "transformers 4.46.3, 4.51.3 to 5.23.0 optimization.py `get_wsd_schedule`: its signature",
        "axolotl 0.8.1 to 0.19.0 core/trainer_builder.py, builders/base.py: both are handed on",
    ),
    check=_check,
)
