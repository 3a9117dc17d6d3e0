"""`auto` in a file that DeepSpeed reads itself."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.effective import AUTO_OF_DEEPSPEED, default_of
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_COUNTS: Final = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)


def _check(run: Run) -> Iterator[Finding]:
    if run.deepspeed_reader == "trainer":
        return
    is_plain = run.deepspeed_reader == "plain"
    for document in run.of("deepspeed"):
        if document.is_view:
            continue
        said = document.where(_is_auto)
        if said and is_plain:
            for path, place in said.items():
                yield _one(run, path, place)
        elif said:
            yield _maybe(said)


def _is_auto(path: str, value: Any) -> bool:
    return bool(value == "auto") and not path.startswith(AUTO_OF_DEEPSPEED)


def _one(run: Run, path: str, place: Place) -> Finding:
    default = default_of(run, "deepspeed", path)
    drops = "." in path and not path.startswith(("optimizer.", "scheduler."))
    value = f"{default.value}" if default.known else "its default"
    note = f"the block drops it, so {value} holds" if drops else "it is used as the word that it is"
    return Finding(
        f"nobody fills in `{path}`: auto",
        (place.label("auto"),),
        (note,),
        "write the value, or let the Trainer read the file",
        consequence="silent" if drops else "init",
    )


def _maybe(said: Mapping[str, Place]) -> Finding:
    labels: list[Label] = []
    for place in said.values():
        labels.append(place.label("auto", primary=not labels))
    names = ", ".join(said)
    return Finding(
        f"whether anybody fills in auto: {names}",
        tuple(labels),
        ("the Trainer fills auto in; deepspeed.initialize fails on it or takes its default",),
        "name the reader with --from huggingface or --from deepspeed",
        certain=False,
        consequence="unclear",
    )


RULE = Rule(
    name="auto-in-plain-deepspeed",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `_batch_assertion`: TypeError, '>' not "
            "supported between 'str' and 'int'; runtime/config_utils.py "
            "`DeepSpeedConfigModel.__init__` drops auto"
        ),
        "Roblox/FAI-RL#72",
    ),
    check=_check,
)
