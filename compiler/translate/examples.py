"""What the example scripts of diffusers are given, in the words of slots.

No target writes their flags: a script stays what is started, with its flags as they are.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.facts.diffusion import KIND, commands

_DATA: Final = ("train_data_dir", "instance_data_dir", "dataset_name")
_SAID: Final[Mapping[str, tuple[str, ...]]] = {
    "pretrained_model_name_or_path": ("model.path",),
    "resolution": ("data.image_width", "data.image_height"),
    "train_batch_size": ("batch.micro",),
    "gradient_accumulation_steps": ("batch.accumulation",),
    "max_train_steps": ("schedule.steps",),
    "learning_rate": ("optimizer.learning_rate",),
    "seed": ("runtime.seed",),
    **dict.fromkeys(_DATA, ("data.train",)),
}
"""The slots of flags of train_text_to_image and train_dreambooth: huggingface/diffusers 0.27.2 to
0.40.0 examples."""


def of_examples(run: LintContext) -> Iterator[Definition]:
    """The slots that the flags of a run's examples set."""
    for document, script in commands(run):
        if script and document.found:
            yield from _definitions(document, script)


_RANK: Final = 4
"""huggingface/diffusers 0.27.2 to 0.40.0: `--rank` of scripts that train adapters."""


def _definitions(document: Document, script: str) -> Iterator[Definition]:
    def said(slot: str, value: Any, flag: str) -> Definition:
        span = document.found[flag].span
        return Definition(slot, value, Rank.OBSERVED, document.name, f"set by {flag}", span=span)

    for flag, slots in _SAID.items():
        if (value := document.value(flag)) is not None:
            yield from (said(slot, value, flag) for slot in slots)
    if document.value("mixed_precision") in ("bf16", "fp16"):
        flag = "mixed_precision"
        yield said("precision.compute", document.value(flag), flag)
        yield said("states.autocast", True, flag)
    is_lora, first = "_lora" in script, next(iter(document.found))
    yield said("model.kind", "diffusion", first)
    yield said("adapter.kind", "lora" if is_lora else "none", first)
    if is_lora:
        yield said("adapter.rank", document.value("rank", _RANK), first)


def without_their_scripts(documents: Iterable[Document]) -> tuple[Document, ...]:
    """The documents, without what an example sets of PEFT: its flags give it."""
    every = tuple(documents)
    if not any(each.kind == KIND for each in every):
        return every
    return tuple(each for each in every if (each.kind, each.format) != ("peft", "python"))
