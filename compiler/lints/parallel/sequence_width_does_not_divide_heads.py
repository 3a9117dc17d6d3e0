"""Heads cannot be spread over the sequence parallel processes."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEYS: Final = (
    ("accelerate", "parallelism_config.parallelism_config_sp_size"),
    ("trainer", "parallelism_config.sp_size"),
)


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None:
        return
    text = [each for each in run.model.architecture.stacks if each.part == "text"]
    for kind, key in _KEYS:
        for place in run.each(kind, key):
            width = place.value
            if not isinstance(width, int) or isinstance(width, bool) or width < 2 or not text:
                continue
            heads, shared = text[0].heads, text[0].kv_heads
            name = heads if heads % width else shared
            if heads % width == 0 and (shared % width == 0 or width % shared == 0):
                continue
            yield Finding(
                f"{name} heads of {run.model.path} over {width} sequence parallel processes",
                (place.label("refused"),),
                ("Ulysses gives each process whole heads of the whole sequence",),
                f"write a width that divides {heads}",
                sum=(
                    Term("attention heads", heads, "heads"),
                    Term("key and value heads", shared, "heads"),
                ),
            )


RULE = Rule(
    name="sequence-width-does-not-divide-heads",
    severity="error",
    consequence="init",
    consumers=("deepspeed>=0.18.2",),
    sources=(
        (
            "deepspeed 0.19.8 runtime/sequence_parallel/ulysses_sp.py "
            "`UlyssesSPAttentionHF.__init__`: Attention head count is not divisible by SP size; KV "
            "attention head count ..."
        ),
    ),
    check=_check,
)
