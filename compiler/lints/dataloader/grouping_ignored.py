"""Samples are to be grouped by length where that does nothing."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    group = _asked(run)
    if group is None:
        return
    streams = _true(run, "streaming", "dataset_streaming")
    packs = _true(run, "packing", "neat_packing", "sample_packing")
    other = streams or packs
    if other is None:
        return
    why = (
        "a stream has no length to sort by: its samples come as they stand"
        if streams
        else "packed sequences are all as long as the limit"
    )
    is_refused = _is_refused(run, group, streams)
    yield Finding(
        f"grouping by length does nothing beside {other.path}",
        (group.label("does nothing"), other.label("", primary=False)),
        (why,),
        f"remove {group.path}",
        severity=None if is_refused and run.runs(_OLD) else "warning",
        consequence="init" if is_refused else None,
    )


_OLD: Final = "transformers<5"


def _is_refused(run: Run, group: Place, streams: Place | None) -> bool:
    """transformers 4 stops where its own key is given for a stream; later ones have another key."""
    is_old = streams is not None and group.path == "group_by_length"
    return is_old and run.runs(_OLD) is not False


def _asked(run: Run) -> Place | None:
    group = run.said("trainer", "group_by_length")
    if group is not None and group.value is True:
        return group
    sampling = run.said("trainer", "train_sampling_strategy")
    return sampling if sampling is not None and sampling.value == "group_by_length" else None


def _true(run: Run, *keys: str) -> Place | None:
    found = (run.said(kind, key) for key in keys for kind in ("trainer", "axolotl"))
    return next((each for each in found if each is not None and each.value is True), None)


RULE = Rule(
    name="grouping-ignored",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 trainer.py `Trainer.__init__`: the `--group_by_length` "
            "option is only available for `Dataset`, not `IterableDataset`: ValueError"
        ),
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `_get_train_sampler`: no sampler for a data "
            "set without a length"
        ),
        (
            "axolotl 0.8.1 to 0.19.0 core/trainers/base.py `_get_train_sampler`: the multipack "
            "sampler with sample_packing"
        ),
    ),
    check=_check,
)
