"""The attention around which ranks share a sequence is not the one that the model runs."""

from collections.abc import Iterator

from tunec.compiler.lints.parallel.shared import SECTION, shared_sequences
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    own = run.said("trainer", "attn_implementation") or run.said("model", "attn_implementation")
    kernel = own.value if own is not None else None
    if own is None or not isinstance(kernel, str):
        return
    for place in shared_sequences(run):
        core = place.document.get(f"{SECTION}sp_attn_implementation")
        asked = core.value if core is not None else "sdpa"
        if asked == kernel:
            continue
        compares = run.runs("deepspeed>=0.19")
        yield Finding(
            f"sequences are shared around {asked}, and the model attends by {kernel}",
            (
                (core or place).label("" if core is not None else "sdpa, where nothing is said"),
                own.label("what runs", primary=False),
            ),
            (
                "DeepSpeed refuses that from 0.19 on"
                if compares
                else "before 0.19 nothing compares them, and each rank attends to its part alone",
            ),
            f"write sp_attn_implementation: {kernel}",
            consequence="init" if compares else "silent",
        )


RULE = Rule(
    name="sequence-attention-differs",
    severity="error",
    consequence="init",
    consumers=("deepspeed>=0.18.2",),
    sources=(
        (
            "deepspeed 0.19.0, 0.19.8 runtime/sequence_parallel/ulysses_sp.py "
            "`register_with_transformers`: core_attn_implementation does not match; 0.18.9 "
            "compares nothing"
        ),
        "accelerate 1.13.0 to 1.15.0 commands/launch.py: sdpa where the key is absent",
    ),
    check=_check,
)
