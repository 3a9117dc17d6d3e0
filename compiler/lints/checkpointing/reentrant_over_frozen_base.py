"""Reentrant checkpointing over frozen layers, to which no gradient comes."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import has_adapter
from tunec.compiler.lints.checkpointing.asked import (
    recomputes,
    reentrant,
    reentrant_place,
)
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OWN = (
    *TRL,
    *("llamafactory", "axolotl", "simpletuner"),
    "alpaca-lora",
)
"""Trainers that let the input of the first layer require a gradient themselves."""


def _check(run: Run) -> Iterator[Finding]:
    yield from _partly_frozen(run)
    if not recomputes(run) or reentrant(run) is not True or not has_adapter(run):
        return
    place = reentrant_place(run)
    if place is None or run.of(*_OWN) or run.runs("transformers>=5"):
        return
    adapter = run.place(run.observed("adapter.kind"))
    yield Finding(
        "reentrant checkpointing over a frozen base: no gradient reaches the adapters",
        (
            place.label("reentrant"),
            *([adapter.label("the base is frozen", primary=False)] if adapter else []),
        ),
        (
            (
                "it recomputes with gradients only if its input requires one, and the output of a "
                "frozen embedding does not, unless the script calls enable_input_require_grads()"
            ),
        ),
        "set use_reentrant to false",
    )


def _partly_frozen(run: Run) -> Iterator[Finding]:
    """Axolotl refuses it itself."""
    for unfrozen in run.each("axolotl", "unfrozen_parameters"):
        document = unfrozen.document
        place = document.get("gradient_checkpointing_kwargs.use_reentrant")
        if unfrozen.value and place is not None and place.value is True:
            yield _refused(place, unfrozen)


def _refused(place: Place, unfrozen: Place) -> Finding:
    return Finding(
        "reentrant checkpointing with partly frozen parameters",
        (place.label("reentrant"), unfrozen.key_label("freezes the rest", primary=False)),
        ("Axolotl refuses it",),
        "set use_reentrant to false",
        severity="error",
        consequence="parse",
    )


RULE = Rule(
    name="reentrant-over-frozen-base",
    severity="warning",
    consequence="step",
    consumers=("transformers<5", "axolotl>=0.8"),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 modeling_utils.py `gradient_checkpointing_enable`: "
            "enable_input_require_grads only for add_adapter's adapters; 5.0.0: for all"
        ),
        (
            "run with peft 0.13.2 and transformers 4.46.3, peft 0.18.1 and 4.57.6: element 0 of "
            "tensors does not require grad; with 0.21.2 and 5.23.0 gradients flow"
        ),
        "axolotl 0.8.1 to 0.19.0 utils/schemas `check_use_reentrant_mismatch`",
        "huggingface/peft#1142, huggingface/transformers#26221, locuslab/open-unlearning#178",
    ),
    check=_check,
)
