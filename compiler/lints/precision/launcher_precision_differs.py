"""The launcher and the trainer name different precisions."""

from collections.abc import Iterator

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.precision.words import on_deepspeed
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OWNERS = ("diffusers", "simpletuner")
_OTHER = {"bf16": "fp16", "fp16": "bf16"}


def _check(run: Run) -> Iterator[Finding]:
    yield from _of_examples(run)
    if on_deepspeed(run):
        return
    flag = run.said("launch", "flags.mixed_precision")
    file = run.said("accelerate", "mixed_precision")
    if flag is not None and file is not None and flag.value != file.value:
        yield _finding(file, flag, "the flag of `accelerate launch` wins")
    launched = flag or file
    if launched is None or str(launched.value) not in _OTHER:
        return
    other = next((e for e in run.each("trainer", _OTHER[launched.value]) if e.value is True), None)
    if other is not None:
        yield _finding(launched, other, "the Trainer sets ACCELERATE_MIXED_PRECISION by its own")
        return
    for said in run.each("trainer", launched.value):
        if said.value is False:
            yield _finding(said, launched, "the launcher's holds where the Trainer's are off")


def _of_examples(run: Run) -> Iterator[Finding]:
    """Accelerator takes what a script hands to it for the last word: diffusers', SimpleTuner's."""
    launched = run.said("launch", "flags.mixed_precision") or run.said(
        "accelerate", "mixed_precision"
    )
    owned = (own for kind in _OWNERS for own in run.each(kind, "mixed_precision"))
    for own in owned:
        if launched is not None and _word(launched) != _word(own):
            yield _finding(launched, own, "Accelerator(mixed_precision=args.mixed_precision)")


def _finding(lost: Place, held: Place, note: str) -> Finding:
    return Finding(
        f"{lost.path} {_word(lost)} here, {held.path} {_word(held)} in {held.document.name}",
        (lost.label("does nothing"), held.label("holds", primary=False)),
        (note,),
        "say the same in both",
    )


def _word(place: Place) -> str:
    return str(place.value).lower()


RULE = Rule(
    name="launcher-precision-differs",
    severity="warning",
    consequence="silent",
    consumers=("accelerate", "transformers", "diffusers", "simpletuner"),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`: the environment's "
            "ACCELERATE_MIXED_PRECISION, then fp16 or bf16 of the arguments over it"
        ),
        "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`",
        "simpletuner 4.10.1 helpers/training/trainer.py: Accelerator(mixed_precision=...)",
        "huggingface/diffusers 0.40.0 examples, `main`: Accelerator; huggingface/diffusers#6363",
    ),
    check=_check,
)
