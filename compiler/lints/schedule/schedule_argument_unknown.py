"""An argument that the schedule does not have."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import arguments_of, is_overridden

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


def _check(run: Run) -> Iterator[Finding]:
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
            yield _finding(name, wrong, at, kind)


def _finding(name: str, wrong: list[str], at: Place, kind: Place | None) -> Finding:
    homes = [each for each, keys in _TAKEN.items() if wrong[0] in keys]
    ignored = name in _DROPPED
    hint = did_you_mean(nearest(wrong[0], _TAKEN[name]))
    return Finding(
        f"the schedule {name} has no argument {quoted(wrong, 'and')}",
        (
            at.key_label("dropped" if ignored else "refused"),
            *([kind.label("", primary=False)] if kind is not None else []),
        ),
        (
            "arguments of this schedule are never passed on"
            if ignored
            else "TypeError: got an unexpected keyword argument",
        ),
        hint or (f"{quoted(homes)} has it" if homes else "remove it"),
        consequence="silent" if ignored else "init",
    )


RULE = Rule(
    name="schedule-argument-unknown",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 optimization.py `get_scheduler`: "
            "**scheduler_specific_kwargs"
            "; mismatched ones cause a TypeError; CONSTANT and CONSTANT_WITH_WARMUP take none"
        ),
    ),
    check=_check,
)
