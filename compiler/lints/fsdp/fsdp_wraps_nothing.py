"""The whole model is one unit, which is gathered whole."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.fsdp.asked import Asked, asked, words
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_POLICY: Final = "auto_wrap_policy"
_BY_CLASS: Final = "write fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"


def _check(run: Run) -> Iterator[Finding]:
    others = list(asked(run))
    for each in others:
        if each.who == "accelerate" and not any(one.who == "trainer" for one in others):
            yield from _accelerate(each)
        elif (
            each.who == "trainer" and (words(each.on) or _is_old(run)) and _is_old(run) is not False
        ):
            if run.said("trainer", "deepspeed"):
                continue
            wraps = "auto_wrap" in words(each.on) or any(one.get(_POLICY) for one in others)
            if not wraps:
                yield _finding(
                    each.on, "no auto_wrap among the options", "add auto_wrap", _is_old(run)
                )


def _is_old(run: Run) -> bool | None:
    """Whether the trainer wraps by the option auto_wrap only."""
    return run.runs("transformers<=5.6.2")


def _accelerate(each: Asked) -> Iterator[Finding]:
    policy, smallest = each.get(_POLICY), each.get("min_num_params")
    word = "NO_WRAP" if policy is None else str(policy.value).upper()
    if word == "NO_WRAP":
        yield _finding(
            policy or each.on, "no auto_wrap_policy" if policy is None else "", _BY_CLASS
        )
    elif word == "SIZE_BASED_WRAP" and smallest is not None and smallest.value == 0:
        yield _finding(smallest, "0 turns wrapping off", _BY_CLASS)


def _finding(place: Place, text: str, change: str, is_old: bool | None = True) -> Finding:
    return Finding(
        "FSDP wraps no layer: every device gathers the whole model at once",
        (place.label(text),),
        (
            "each wrapped unit is gathered when it runs, and freed after",
            "with one unit the parameters are whole during forward and backward",
            *(("nobody names the version; this holds for transformers<=5.6.2",) * (not is_old)),
        ),
        change,
    )


RULE = Rule(
    name="fsdp-wraps-nothing",
    severity="warning",
    consequence="out-of-memory",
    consumers=(
        "accelerate",
        "transformers",
    ),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `FullyShardedDataParallelPlugin`: "
            "FSDP_AUTO_WRAP_POLICY is NO_WRAP where absent; `set_auto_wrap_policy`: min_num_params "
            "0 is None"
        ),
        (
            "transformers 4.40.2 to 5.6.2 training_args.py: a policy is passed on for the option "
            "auto_wrap only"
        ),
    ),
    check=_check,
)
