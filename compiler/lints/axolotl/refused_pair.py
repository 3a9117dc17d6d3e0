"""Two keys that Axolotl refuses together."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_PAIRS: Final[tuple[tuple[str, str, str], ...]] = (
    ("sample_packing", "rl", "packing does not work with preference methods"),
    ("batch_flattening", "sample_packing", "both do the same"),
    ("warmup_ratio", "warmup_steps", "each follows from the other"),
    ("save_steps", "saves_per_epoch", "each follows from the other"),
    ("eval_steps", "evals_per_epoch", "each follows from the other"),
    ("val_set_size", "test_datasets", "the first takes from the training data"),
    ("gradient_accumulation_steps", "batch_size", "each follows from the other"),
    ("flash_attn_fuse_mlp", "adapter", "fused modules have no projections for LoRA"),
    ("eval_table_size", "sample_packing", "samples of a packed evaluation cannot be shown"),
)
"""Key, other key, why: refused where both are set to something."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("axolotl"):
        if not document.is_view:
            yield from _of(document)


def _of(document: Document) -> Iterator[Finding]:
    for key, other, why in _PAIRS:
        at, beside = document.get(key), document.get(other)
        if at is None or beside is None or not at.value or not beside.value:
            continue
        if key == "batch_flattening" and at.value == "auto":
            continue
        if key == "eval_table_size" and document.value("eval_sample_packing") is False:
            continue
        yield Finding(
            f"{key} cannot stand beside {other}",
            (at.label("refused"), beside.label("", primary=False)),
            (why,),
            "keep one of them",
        )


RULE = Rule(
    name="refused-pair",
    severity="error",
    consequence="parse",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 utils/schemas/config.py, 0.13.2 and 0.19.0 "
            "utils/schemas/validation.py: `check_sample_packing_w_rl`, `check_warmup`, "
            "`check_saves`, `check_evals`, `check_eval_packing`, `check_fused_lora`, "
            "`check_test_datasets`, `check_gas_bsz`, `check_batch_flattening_fa`"
        ),
    ),
    check=_check,
)
