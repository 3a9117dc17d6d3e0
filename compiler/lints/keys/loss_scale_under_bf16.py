"""Keys of fp16's loss scaling in the block bf16."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.keys.known import BF16_SCALING
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import faults


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        for fault in faults(run, document):
            if fault.what != "unknown" or fault.path not in BF16_SCALING:
                continue
            yield Finding(
                f"`{fault.path}` is a key of fp16: bf16 has no loss scale",
                (fault.place.key_label("refused" if fault.is_refused else "ignored"),),
                (f"by the keys of {run.release('deepspeed')}",),
                "remove it",
                Fix((fault.place.removed(),), "safe"),
                consequence="init" if fault.is_refused else "silent",
            )


RULE = Rule(
    name="loss-scale-under-bf16",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        "deepspeed 0.14.5 to 0.19.8 runtime/precision_config.py `DeepSpeedBF16Config`",
        "FlagOpen/FlagEmbedding#1487, ielab/llm-rankers#2",
    ),
    check=_check,
)
