"""DeepSpeed's Adam decays weights as AdamW does."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import is_positive
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    kind = run.said("deepspeed", "optimizer.type")
    if kind is None or not isinstance(kind.value, str) or kind.value.lower() != "adam":
        return
    decay = run.effective("deepspeed", "optimizer.params.weight_decay")
    if run.said("deepspeed", "optimizer.params.adam_w_mode") or not is_positive(decay.value):
        return
    yield Finding(
        f"{kind.value} with weight decay {decay.value} runs as AdamW",
        (
            kind.label("AdamW"),
            *([decay.place.label("", primary=False)] if decay.place is not None else []),
        ),
        (
            (
                "adam_w_mode is true unless it is written: the decay is taken from the "
                "weights, and not "
                "added to the gradient"
            ),
        ),
        'write "type": "AdamW", or "adam_w_mode": false for L2 regularisation',
    )


RULE = Rule(
    name="adam-is-adamw",
    severity="note",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_basic_optimizer`: "
            "optimizer name "
            "of Adam forces AdamW logic unless adam_w_mode is explicitly set; runtime/config.py "
            "ADAM_W_MODE_DEFAULT = True"
        ),
    ),
    check=_check,
)
