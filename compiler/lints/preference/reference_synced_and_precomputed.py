"""The reference model is to move, and its log-probabilities are computed beforehand."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("dpo", "kto"):
        sync, before = document.get("sync_ref_model"), document.get("precompute_ref_log_probs")
        if sync is None or before is None or sync.value is not True or before.value is not True:
            continue
        yield Finding(
            "sync_ref_model cannot stand beside precompute_ref_log_probs",
            (sync.label("moves the reference"), before.label("takes it as fixed", primary=False)),
            (),
            "turn one of the two off",
            Fix((before.replaced(value=False),), "unsafe"),
        )


RULE = Rule(
    name="reference-synced-and-precomputed",
    severity="error",
    consequence="init",
    consumers=("trl",),
    sources=(
        (
            "trl 0.10.1 to 1.16.0 trainer/dpo_trainer.py, 1.8.0 to 1.16.0 kto_trainer.py: You "
            "cannot use `sync_ref_model=True` together with `precompute_ref_log_probs=True`"
        ),
    ),
    check=_check,
)
