"""accelerate is told one engine setting, and the trainer another, which is the one that counts."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.fsdp.asked import Asked, asked, words
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_STRATEGIES: Final = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard")
_BY_NUMBER: Final = {"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard"}


def _check(run: Run) -> Iterator[Finding]:
    given = next((each for each in run.each("trainer", "deepspeed") if each.value), None)
    for document in run.of("accelerate"):
        if document.value("distributed_type") == "DEEPSPEED" and given is not None:
            yield from _deepspeed(run, document, given)
        yield from _other(run, document, given)
    every = list(asked(run))
    for launched in every:
        for trainer in every:
            if launched.who == "accelerate" and trainer.who == "trainer":
                yield from _fsdp(launched, trainer)


def _other(run: Run, document: Document, given: Place | None) -> Iterator[Finding]:
    """The launcher asks for one engine, and the trainer for the other."""
    kind = document.get("distributed_type")
    fsdp = next((each for each in run.each("trainer", "fsdp") if each.value), None)
    asked_for = {"FSDP": given, "DEEPSPEED": fsdp}.get(str(kind.value)) if kind else None
    if kind is not None and asked_for is not None:
        yield Finding(
            f"accelerate is to use {kind.value}, and the trainer has {asked_for.path}",
            (kind.label(""), asked_for.label("the other engine", primary=False)),
            (
                "DeepSpeed is used, and nothing is said of FSDP"
                if kind.value == "FSDP"
                else "the trainer refuses fsdp where DeepSpeed is on",
            ),
            "keep one of them",
            consequence="silent" if kind.value == "FSDP" else "init",
            certain=not _is_one_of_several(run, asked_for),
        )


def _is_one_of_several(run: Run, given: Place) -> bool:
    """Whether a script starts several runs, of which the launcher may start another one."""
    at = given.document
    mine = [each for each in run.of("trainer") if each.name == at.name and not each.is_view]
    return at.format == "shell" and len(mine) > 1


def _deepspeed(run: Run, document: Document, given: Place) -> Iterator[Finding]:
    """The launcher's block, or its file, beside the file of the trainer."""
    file = document.get("deepspeed_config.deepspeed_config_file")
    stage, other = document.get("deepspeed_config.zero_stage"), _stage_of(run)
    if file is not None:
        if _is_same(file, given):
            return
        yield _finding(file, given, "the file of the trainer is used", None)
    elif stage is not None:
        differs = other is not None and str(stage.value) != str(other.value)
        yield _finding(stage, given, "nothing of this block is used", other if differs else None)


def _stage_of(run: Run) -> Place | None:
    """The stage in the file that the trainer is given."""
    files = (each for each in run.of("deepspeed") if not each.is_view or each.origin is None)
    found = (each.get("zero_optimization.stage") for each in files)
    return next((each for each in found if each is not None), None)


def _is_same(file: Place, given: Place) -> bool:
    names = [str(each.value) for each in (file, given)]
    return PurePath(names[0]).name == PurePath(names[1]).name


def _fsdp(launched: Asked, trainer: Asked) -> Iterator[Finding]:
    place = launched.get("sharding_strategy")
    if place is None:
        return
    word = str(place.value).lower()
    word = _BY_NUMBER.get(word, word)
    others = [each for each in words(trainer.on) if each in _STRATEGIES]
    if word in _STRATEGIES and others and word not in others:
        yield _finding(place, trainer.on, f"{others[0]} is used", trainer.on)


def _finding(place: Place, given: Place, text: str, other: Place | None) -> Finding:
    """`other`: what it comes to instead, where that is known to differ."""
    key = place.path.rpartition(".")[2]
    second = given if other is None else other
    return Finding(
        f"{key} of accelerate is overridden by the trainer's {given.path}",
        (place.label("not used"), second.label("used", primary=False)),
        (f"the trainer hands its own settings to accelerate: {text}",),
        "say it in one place: leave it out of the trainer's arguments, or out of this file",
        severity=None if other is not None else "warning",
    )


RULE = Rule(
    name="engine-settings-overridden",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments.__post_init__`: "
            "DeepSpeedPlugin(hf_ds_config=...) where `deepspeed` is set, and the launcher's "
            "environment only else; `_process_fsdp_args`, up to 4.57.6 FSDP_SHARDING_STRATEGY"
        ),
        (
            "accelerate 0.30.1 to 1.15.0 accelerator.py `Accelerator.__init__`: a plugin that is "
            "handed over is taken as it is; state.py `AcceleratorState`: DeepSpeed before FSDP"
        ),
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `Trainer.__init__`: --fsdp xxx together "
            "with --deepspeed is not possible"
        ),
    ),
    check=_check,
)
