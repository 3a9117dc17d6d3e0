"""Flags of SwissArmyTransformer, which the scripts of VisualGLM, CogVLM and CogAgent accept."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.conditions import is_checked, notes, severity, where
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.caches import cached

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
_ACCUMULATION: Final = "gradient_accumulation_steps"
_MOST_STAGE: Final = 2
_WHOLE: Final = "deepspeed>=0.17.1"
"""deepspeedai/DeepSpeed e440506: min_loss_scale must be a whole number, even if fp16 is off."""
_LAYERS: Final = 28
"""num_layers of zai-org/VisualGLM-6B's model_config.json."""
_FILE: Final = "visualglm/0.4.12.json"
_TUNED: Final = ("use_lora", "use_qlora", "use_ptuning")


@rule("error", "parse", consumers=("swissarmytransformer",), reads=("sat:*",))
def sat_flags_clash(run: LintContext) -> Iterator[Finding]:
    """Flags of SwissArmyTransformer that it refuses together, or that a file overrides."""
    for document in run.of("sat"):
        yield from _pairs(document)
        yield from _of_choices(document)
        yield from _overridden(run, document)
        yield from _of_own_file(run, document)
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


def _of_choices(document: Document) -> Iterator[Finding]:
    """A value that is none of the flag's choices."""
    for flag, words in _choices().items():
        at = document.get(flag)
        if at is not None and isinstance(at.value, str) and at.value not in words:
            yield Finding(
                f"{flag} cannot be {at.value}",
                (at.label("refused"),),
                (f"taken: {', '.join(words)}",),
                f"write {(nearest(at.value, words) or words)[0]}",
            )


@cached()
def _choices() -> Mapping[str, Sequence[str]]:
    found: Mapping[str, Any] = schema(_FILE)["properties"]
    words = {name: [each for each in of.get("enum", ()) if each] for name, of in found.items()}
    return {
        name.replace("-", "_"): each
        for name, each in words.items()
        if each and all(isinstance(word, str) for word in each)
    }


def _overridden(run: LintContext, document: Document) -> Iterator[Finding]:
    """A different value in the file silently overrides the flag."""
    file = document.get("deepspeed_config")
    if file is None or not run.of("deepspeed"):
        return
    if run.said("deepspeed", _ACCUMULATION) is None:
        yield Finding(
            f"{file.value} has no {_ACCUMULATION}",
            (file.label("read unchanged"),),
            ("it is multiplied in the first line of the log: TypeError, NoneType and int",),
            f"write {_ACCUMULATION} into the file, 1 for none",
            consequence="step",
        )
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
            (at.label("overridden"), (held or file).label("", primary=False)),
            ("the file is read unchanged, and the flag is set to what it says",),
            "write it in the file, and leave the flag out",
            severity="warning",
            consequence="silent",
        )


def _of_own_file(run: LintContext, document: Document) -> Iterator[Finding]:
    """If no file is named, one of three files in the package is used."""
    first = next(iter(document.found.values()), None)
    if "deepspeed_config" in {*document.keys, *document.unknown} or first is None:
        return
    at, stage = document.get("zero_stage"), document.value("zero_stage", 0)
    is_open = "zero_stage" in document.unknown or document.value("mode") == "inference"
    if is_open or not is_whole(stage):
        return
    if stage > _MOST_STAGE and at is not None:
        yield Finding(
            f"SwissArmyTransformer has no file for ZeRO stage {stage}",
            (at.label("refused"),),
            (f"FileNotFoundError: deepspeed_zero{stage}.json; it brings stages 0, 1 and 2",),
            "name a file of your own by --deepspeed_config",
        )
    is_silent = not {"fp16", "bf16"} & {*document.keys, *document.unknown}
    if 0 < stage <= _MOST_STAGE and is_silent and at is not None:
        yield Finding(
            f"zero_stage {stage} turns fp16 on where neither fp16 nor bf16 is written",
            (at.label("computed in fp16"),),
            ("Automatically set fp16=True to use ZeRO",),
            "write --fp16 or --bf16, or turn both off in a file named by --deepspeed_config",
            severity="warning",
            consequence="silent",
        )
    if stage == 0 and is_checked(run, _WHOLE):
        yield Finding(
            "SwissArmyTransformer's file for ZeRO stage 0 is refused by DeepSpeed",
            ((at or first).label("stage 0" if at else "stage 0, where no zero_stage is written"),),
            notes(run, "its min_loss_scale is 0.01, and has to be a whole number", _WHOLE),
            "write --zero-stage 1, or name a file of your own by --deepspeed_config",
            severity=severity(run, _WHOLE),
            consequence="init",
        )


def _same(flag: object, held: object) -> bool:
    return flag == held or str(flag).lower() == str(held).lower()


def _of_visualglm(run: LintContext, document: Document) -> Iterator[Finding]:
    started = [str(each.value("script")) for each in run.of("launch") if each.name == document.name]
    if not any("finetune_visualglm" in each for each in started):
        return
    tuned = [flag for flag in _TUNED if where(document, flag) is not None]
    first = next(iter(document.found.values()), None)
    if not tuned and first is not None and not document.unknown & set(_TUNED):
        yield Finding(
            "finetune_visualglm.py is given none of use_lora, use_qlora and use_ptuning",
            (first.key_label("among these flags"),),
            ("all weights are frozen except those of these methods: no parameter is left",),
            "write --use_lora",
            consequence="init",
        )
    yield from _layers(document)
    width = document.get("model_parallel_size")
    if width is not None and is_whole(width.value) and width.value > 1:
        yield Finding(
            f"model_parallel_size {width.value} differs from the parts of visualglm-6b",
            (width.label("of one part"),),
            ("each part needs its own file: mp_rank_01_model_states.pt is not there",),
            "write 1, or split it first with overwrite_args={'model_parallel_size': ...}",
            consequence="load",
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


def _layers(document: Document) -> Iterator[Finding]:
    """`layer_range` is a list of layers, not a range."""
    at = document.get("layer_range")
    layers = at.value if at is not None and isinstance(at.value, list) else []
    beyond = [each for each in layers if is_whole(each) and each >= _LAYERS]
    if at is not None and beyond:
        yield Finding(
            f"layer_range names layer {beyond[0]} of {_LAYERS}, which are counted from 0",
            (at.label("no such layer"),),
            ("each number is a layer that LoRA is put into: IndexError",),
            f"write numbers up to {_LAYERS - 1}",
            consequence="init",
        )
