"""A number of steps that is 0, and that a count of steps is divided by."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final[tuple[tuple[str, str, Consequence, str], ...]] = (
    ("trainer", "eval_accumulation_steps", "step", "at the first evaluation"),
    ("trainer", "torch_empty_cache_steps", "parse", "when the arguments are read"),
    ("deepspeed", "steps_per_print", "step", "at the end of the first step"),
)


def _check(run: Run) -> Iterator[Finding]:
    for kind, key, consequence, when in _KEYS:
        for place in run.each(kind, key):
            if kind == "deepspeed" and run.deepspeed_reader == "trainer":
                continue  # accelerate writes inf over it
            is_number = type(place.value) in (int, float)
            if is_number and (place.value == 0 or (consequence == "parse" and place.value < 0)):
                yield _finding(place, consequence, when)


def _finding(place: Place, consequence: Consequence, when: str) -> Finding:
    reason = "refused" if consequence == "parse" else "ZeroDivisionError"
    return Finding(
        f"`{place.path}` is {place.value}: the run fails {when}",
        (place.label(reason),),
        ("the number of steps is divided by it",)
        if place.value == 0
        else ("it must be above 0, or left out",),
        "leave it out where nothing is to be done",
        consequence=consequence,
    )


RULE = Rule(
    name="divided-by-zero",
    severity="error",
    consequence="step",
    consumers=("transformers", "deepspeed"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `evaluation_loop`: (step + 1) % "
            "args.eval_accumulation_steps; training_args.py: torch_empty_cache_steps must be an "
            "integer bigger than 0"
        ),
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_take_model_step`: (self.global_steps + "
            "1) % self.steps_per_print()"
        ),
    ),
    check=_check,
)
