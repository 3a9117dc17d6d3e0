"""The whole model is one unit, which is gathered whole."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tunec.compiler.lints.fsdp.asked import Asked, asked, is_true, words
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_POLICY: Final = "auto_wrap_policy"
_CLASSES: Final = "transformer_layer_cls_to_wrap"
_BY_CLASS: Final = "write fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"


def _check(run: Run) -> Iterator[Finding]:
    others = list(asked(run))
    for each in others:
        if _names_no_class(run, each):
            yield _of_no_class(each)
        elif each.who == "accelerate" and not any(one.who == "trainer" for one in others):
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
    elif (
        word == "SIZE_BASED_WRAP" and smallest is None and policy is not None and each.version == 1
    ):
        yield _finding(policy, "no fsdp_min_num_params, which is then 0", _BY_CLASS)


def _names_no_class(run: Run, each: Asked) -> bool:
    """FSDP2 by class, of which no name is told: accelerate takes the model's own from 1.14 on."""
    policy = each.get(_POLICY)
    if policy is None and each.who != "trainer":
        return False
    by_class = policy is None or str(policy.value).upper() == "TRANSFORMER_BASED_WRAP"
    is_told = each.get(_CLASSES) is not None or each.who == "axolotl"
    return by_class and each.version == 2 and not is_told and run.runs("accelerate<1.14") is True


def _of_no_class(each: Asked) -> Finding:
    place, recomputed = each.get(_POLICY) or each.on, each.get("activation_checkpointing")
    found = _finding(place, "no class is named", "write fsdp_transformer_layer_cls_to_wrap")
    if recomputed is None or not is_true(recomputed):
        return found
    label = recomputed.label("no layer is recomputed either", primary=False)
    return replace(found, labels=(*found.labels, label))


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
            "0 is None; FSDP_MIN_NUM_PARAMS is 0 where absent"
        ),
        (
            "accelerate 1.6.0 to 1.13.0 utils/fsdp_utils.py `fsdp2_prepare_auto_wrap_policy`: the "
            "policy is False where transformer_cls_names_to_wrap is None, also for "
            "`fsdp2_apply_ac`; 1.14.0: the model's _no_split_modules"
        ),
        (
            "transformers 4.40.2 to 5.6.2 training_args.py: a policy is passed on for the option "
            "auto_wrap only"
        ),
    ),
    check=_check,
)
