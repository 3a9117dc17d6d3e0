"""Flags of SwissArmyTransformer that it refuses together, or that a file takes the place of."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PAIRS: Final = (
    ("fp16", "bf16", "cannot specify both fp16 and bf16"),
    ("train_iters", "epochs", "only one of train_iters and epochs should be set"),
)
_OF_FILE: Final = {
    "batch_size": "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "lr": "optimizer.params.lr",
    "weight_decay": "optimizer.params.weight_decay",
    "zero_stage": "zero_optimization.stage",
    "fp16": "fp16.enabled",
    "bf16": "bf16.enabled",
}
"""sat/arguments.py `get_args`: override args with values in deepspeed_config."""
_TUNED: Final = ("use_lora", "use_qlora", "use_ptuning")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("sat"):
        yield from _pairs(document)
        yield from _overridden(run, document)
        yield from _of_visualglm(run, document)


def _pairs(document: Document) -> Iterator[Finding]:
    for flag, other, why in _PAIRS:
        at, beside = where(document, flag), where(document, other)
        if at is not None and beside is not None:
            yield Finding(
                f"{flag} and {other} are both given",
                (at.label("refused"), beside.label("", primary=False)),
                (why,),
                "keep one of the two",
            )


def _overridden(run: Run, document: Document) -> Iterator[Finding]:
    """A value of the file that differs wins, and nothing says so of the flag."""
    file = document.get("deepspeed_config")
    if file is None or not run.of("deepspeed"):
        return
    for flag, key in _OF_FILE.items():
        at, held = document.get(flag), run.said("deepspeed", key)
        if at is None or at.value is None:
            continue
        if held is not None and _same(at.value, held.value):
            continue
        if held is None and flag in ("lr", "weight_decay", "batch_size"):
            continue  # what the file does not say is taken from the flags
        told = f"{key} is {held.value}" if held is not None else f"has no {key}"
        yield Finding(
            f"{flag} {at.value} is not read beside deepspeed_config, whose {told}"
            if held is not None
            else f"{flag} {at.value} is not read beside deepspeed_config, which {told}",
            (
                at.label("overridden"),
                (held or file).label("", primary=False),
            ),
            ("the file is read as it stands, and the flag is set to what it says",),
            "write it in the file, and leave the flag out",
            severity="warning",
            consequence="silent",
        )


def _same(flag: object, held: object) -> bool:
    return flag == held or str(flag).lower() == str(held).lower()


def _of_visualglm(run: Run, document: Document) -> Iterator[Finding]:
    started = [str(each.value("script")) for each in run.of("launch") if each.name == document.name]
    if not any("finetune_visualglm" in each for each in started):
        return
    tuned = [flag for flag in _TUNED if where(document, flag) is not None]
    first = next(iter(document.found.values()), None)
    if not tuned and first is not None and not document.unknown & set(_TUNED):
        yield Finding(
            "finetune_visualglm.py is given none of use_lora, use_qlora and use_ptuning",
            (first.key_label("among these flags"),),
            ("every weight is frozen that none of them trains: no parameter is left",),
            "write --use_lora",
            consequence="init",
        )
    if "use_lora" in tuned and "use_qlora" in tuned:
        at = document.get("use_qlora")
        if at is not None:
            yield Finding(
                "use_qlora does nothing beside use_lora",
                (at.label("not read"),),
                ("the base is not quantised",),
                "remove one of the two",
                severity="warning",
                consequence="silent",
            )


RULE = Rule(
    name="sat-flags-clash",
    severity="error",
    consequence="parse",
    consumers=("swissarmytransformer",),
    sources=(
        (
            "SwissArmyTransformer 0.4.12 sat/arguments.py `get_args`: cannot specify both fp16 and "
            "bf16; only one of train_iters and epochs should be set; Will override arguments with "
            "manually specified deepspeed_config"
        ),
        (
            "THUDM/VisualGLM-6B e314fb9 finetune_visualglm.py `FineTuneVisualGLMModel`, "
            "`disable_untrainable_params`"
        ),
    ),
    check=_check,
)
