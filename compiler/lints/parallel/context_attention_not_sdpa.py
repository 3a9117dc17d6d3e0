"""Ranks share the context of a model whose attention is not SDPA."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.parallel.shared import SECTION
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.runs("transformers<=4.51.3"):
        return  # whose Trainer shares no contexts
    own = run.said("trainer", "attn_implementation") or run.said("model", "attn_implementation")
    if own is None or not isinstance(own.value, str) or own.value == "sdpa":
        return
    for place in _widths(run):
        if is_whole(place.value) and place.value > 1:
            yield Finding(
                f"{place.value} ranks share the context, and the model attends by {own.value}",
                (own.label("refused"), place.label("", primary=False)),
                ("Context parallelism is supported only with SDPA attention",),
                "write attn_implementation: sdpa",
            )


def _widths(run: Run) -> Iterator[Place]:
    yield from run.each("accelerate", f"{SECTION}cp_size")
    for document in launches(run, "accelerate"):
        place = document.get("flags.parallelism_config_cp_size")
        if place is not None and document.get("flags.use_parallelism_config"):
            yield place


RULE = Rule(
    name="context-attention-not-sdpa",
    severity="error",
    consequence="step",
    consumers=("transformers",),
    sources=(
        "transformers 4.57.6, 5.23.0 trainer.py `_prepare_context_parallel_inputs`: ValueError",
    ),
    check=_check,
)
