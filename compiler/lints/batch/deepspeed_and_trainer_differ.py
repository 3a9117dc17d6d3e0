"""A value that DeepSpeed's file and the trainer's arguments both say, and not alike."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.effective import FILLS, Effective
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_FP16_WINS: Final = "axolotl>=0.13"
"""axolotl 0.13.2 and 0.19.0 utils/config/__init__.py `resolve_dtype`; before, `bf16: auto` wins."""


def _check(run: Run) -> Iterator[Finding]:
    if not run.of("trainer"):
        return
    for key, (words, fill) in FILLS.items():
        ours = run.effective("deepspeed", key)
        if not ours.is_written or ours.value is None or ours.place is None:
            continue
        theirs = fill(run)
        if theirs is not None and not _agree(ours.value, theirs):
            yield _finding(run, key, ours.place, words, theirs)
    yield from _left_out(run)


def _left_out(run: Run) -> Iterator[Finding]:
    """fp16 in Axolotl's file turns off the bf16 that is not written, or left to the device."""
    key = "bf16.enabled"
    ours = run.effective("deepspeed", key)
    for document in run.of("axolotl") if run.runs(_FP16_WINS) is not False else ():
        half, own = document.get("fp16"), document.get("bf16")
        is_half = half is not None and half.value is True
        is_open = (own is None or own.value in (None, "auto")) and "bf16" not in document.unknown
        if half and is_half and is_open and ours.value is True and ours.place is not None:
            yield Finding(
                f"`{ours.place.path}` is True, and fp16 turns the trainer's bf16 off",
                (
                    half.label("the trainer's bf16 becomes False"),
                    ours.place.label("by DeepSpeed's file", primary=False),
                ),
                (f"the trainer compares `{key}` with its own arguments and refuses to start",),
                "write bf16: true instead, or enable fp16 in DeepSpeed's file",
            )


def _agree(ours: Any, theirs: Any) -> bool:
    """As the trainer compares: by ==, so that a text never equals a number."""
    return bool(ours == theirs)


def _finding(run: Run, key: str, place: Place, words: str, theirs: Any) -> Finding:
    others = _places(run, words)
    text = f"{place.value!r} (text)" if isinstance(place.value, str) else f"{place.value}"
    by = "" if others else f", {_default(run, words).by}"
    return Finding(
        f"`{place.path}` is {text}, but {words} is {theirs}{by}",
        (
            place.label("by DeepSpeed's file"),
            *(each.label("by the trainer", primary=False) for each in others),
        ),
        (f"the trainer compares `{key}` with its own arguments and refuses to start",),
        f'set `{place.path}` to "auto", or give both one value',
    )


def _places(run: Run, words: str) -> list[Place]:
    names = words.replace(" or ", ", ").replace(" x ", ", ").split(", ")
    found = (run.said("trainer", name) for name in names)
    return [place for place in found if place is not None]


def _default(run: Run, words: str) -> Effective:
    return run.effective("trainer", words.partition(",")[0].partition(" ")[0])


RULE = Rule(
    name="deepspeed-and-trainer-differ",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py "
            "`HfTrainerDeepSpeedConfig.fill_match`, `trainer_config_process`: ValueError, please "
            "correct the following DeepSpeed config values that mismatch TrainingArguments values"
        ),
        "hendrycks/apps#9, hiyouga/LlamaFactory#201, shibing624/MedicalGPT#191",
    ),
    check=_check,
)
