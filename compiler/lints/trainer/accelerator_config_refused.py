"""A key of accelerator_config that it does not have."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import arguments_of

_KEYS: Final = (
    *("split_batches", "dispatch_batches", "even_batches", "use_seedable_sampler"),
    *("non_blocking", "gradient_accumulation_kwargs", "use_configured_state"),
)
_OF_ACCUMULATION: Final = (
    *("num_steps", "adjust_scheduler", "sync_with_dataloader", "sync_each_batch"),
    "step_scheduler_with_optimizer",
)


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        yield from _below(document, "accelerator_config", _KEYS)
        inner = "accelerator_config.gradient_accumulation_kwargs"
        yield from _below(document, inner, _OF_ACCUMULATION)


def _below(document: Document, holder: str, known: tuple[str, ...]) -> Iterator[Finding]:
    held = document.get(holder)
    for name in arguments_of(held) or {}:
        place = document.get(f"{holder}.{name}") or held
        if place is None or name in known:
            continue
        near = nearest(name, known)[:1]
        yield Finding(
            f"{holder} has no key `{name}`",
            (place.label("refused") if place is held else place.key_label("refused"),),
            (),
            did_you_mean(near) or "remove it",
            Fix((place.renamed(near[0]),), "unsafe") if near and place is not held else None,
        )


RULE = Rule(
    name="accelerator-config-refused",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`: "
            "AcceleratorConfig(**self.accelerator_config), a TypeError for another name; "
            "trainer_pt_utils.py `AcceleratorConfig`"
        ),
        "accelerate 1.15.0 utils/dataclasses.py `GradientAccumulationPlugin`",
    ),
    check=_check,
)
