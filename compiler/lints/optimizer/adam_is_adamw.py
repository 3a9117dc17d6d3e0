"""DeepSpeed's Adam decays weights as AdamW does."""

from collections.abc import Iterator

from tunec.compiler.lints.batch.counts import is_positive
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    kind = run.said("deepspeed", "optimizer.type")
    word = kind.value.lower() if kind is not None and isinstance(kind.value, str) else ""
    if kind is not None and word == "adamw":
        yield from _decoupled_anyway(run, kind)
    if kind is None or word != "adam":
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
                "adam_w_mode is true unless it is written: the decay is taken from the weights, "
                "and not added to the gradient"
            ),
        ),
        'write "type": "AdamW", or "adam_w_mode": false for L2 regularisation',
    )


def _decoupled_anyway(run: Run, kind: Place) -> Iterator[Finding]:
    mode = run.said("deepspeed", "optimizer.params.adam_w_mode")
    if mode is not None and mode.value is False:
        yield Finding(
            f"adam_w_mode false does nothing for {kind.value}",
            (mode.label("not read"), kind.label("AdamW by its name", primary=False)),
            ("the name AdamW decides: the decay is taken from the weights",),
            'write "type": "Adam" for L2 regularisation, or remove adam_w_mode',
            severity="warning",
        )


RULE = Rule(
    name="adam-is-adamw",
    severity="note",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_configure_basic_optimizer`: optimizer "
            "name of Adam forces AdamW logic unless adam_w_mode is explicitly set; "
            "runtime/config.py ADAM_W_MODE_DEFAULT = True"
        ),
    ),
    check=_check,
)
