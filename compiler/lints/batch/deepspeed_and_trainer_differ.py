"""A value that DeepSpeed's file and the trainer's arguments both say, and not alike."""

from collections.abc import Iterator
from typing import Any

from tunec.compiler.lints.effective import FILLS, Effective
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


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
            "`HfTrainerDeepSpeedConfig.fill_match`, "
            "`trainer_config_process`: ValueError, please correct the following DeepSpeed config "
            "values "
            "that mismatch TrainingArguments values"
        ),
        "hendrycks/apps#9, hiyouga/LlamaFactory#201, shibing624/MedicalGPT#191",
    ),
    check=_check,
)
