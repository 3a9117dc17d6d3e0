"""A cache of keys and values is asked for where activations are recomputed."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.checkpointing.asked import checkpointing_place, recomputes
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = ("use_cache", "model_init_kwargs.use_cache", "model_kwargs.use_cache")


def _check(run: Run) -> Iterator[Finding]:
    switch = checkpointing_place(run)
    if switch is None or not recomputes(run):
        return
    for at in _asked(run):
        yield Finding(
            "use_cache is turned off where activations are recomputed",
            (at.label("does nothing"), switch.label("", primary=False)),
            (
                (
                    "transformers sets it to False: `use_cache=True` is incompatible with gradient "
                    "checkpointing; keys that are kept would be there twice when a layer runs again"
                ),
            ),
            "write use_cache: false",
        )


def _asked(run: Run) -> Iterator[Place]:
    for document in run.of("model", "trainer"):
        if document.is_view or document.kind == "llamafactory":
            continue
        at = next((found for key in _KEYS if (found := document.get(key)) is not None), None)
        if at is not None and at.value is True:
            yield at


RULE = Rule(
    name="cache-beside-checkpointing",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 models/llama/modeling_llama.py `forward`: `use_cache=True` is "
            "incompatible with gradient checkpointing. Setting `use_cache=False`; 5.23.0 "
            "modeling_layers.py `GradientCheckpointingLayer.__init_subclass__`"
        ),
        "huggingface/transformers#28056, #34928",
    ),
    check=_check,
)
