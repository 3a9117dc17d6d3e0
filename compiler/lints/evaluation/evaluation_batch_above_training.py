"""Evaluation takes far more samples at once than training."""

from collections.abc import Iterator
from dataclasses import replace

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.evaluation.asked import GIB, evaluates
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.sequence.length import longest

_FAR = 4
"""From this many times the micro batch on."""
_FLOAT32 = 4


def _check(run: Run) -> Iterator[Finding]:
    train = run.effective("trainer", "per_device_train_batch_size")
    test = run.effective("trainer", "per_device_eval_batch_size")
    if not is_whole(train.value) or not is_whole(test.value) or train.place is None:
        return
    if train.value < 1 or test.value < _FAR * train.value or not evaluates(run):
        return
    terms = _logits(run, test.value)
    if test.place is None and not terms:
        return
    found = _finding(train, test, terms)
    yield replace(found, severity="warning") if terms and _is_too_much(run, terms[-1]) else found


def _is_too_much(run: Run, logits: Term) -> bool:
    """Whether the logits alone are more than a device holds, of a trainer that makes them whole."""
    device = run.environment.weakest
    is_whole_there = bool(run.of("hf", "llamafactory")) and not run.of("sft", "dpo")
    return is_whole_there and device is not None and logits.value > device.memory


def _logits(run: Run, batch: int) -> tuple[Term, ...]:
    """The largest tensor of an evaluation: logits in fp32 of every token."""
    length, model = longest(run), run.model
    vocabulary = model.architecture.vocab if model is not None else None
    if not is_whole(length) or not is_whole(vocabulary) or length < 1:
        return ()
    return (
        Term("samples", batch, "samples"),
        Term("tokens of each", length, "tokens"),
        Term("vocabulary", vocabulary, "numbers"),
        Term("logits in fp32", batch * length * vocabulary * _FLOAT32, "bytes"),
    )


def _finding(train: Effective, test: Effective, terms: tuple[Term, ...]) -> Finding:
    said = f"{test.value}" + ("" if test.place else f", {test.by}")
    more = f": logits up to {terms[-1].value / GIB:.1f} GiB" if terms else ""
    labels = [each.place.label("", primary=each is test) for each in (test, train) if each.place]
    if test.place is None and train.place is not None:
        labels = [train.place.label("samples in training")]
    return Finding(
        f"evaluation takes {said} samples at once, training {train.value}{more}",
        tuple(labels),
        (
            (
                "no activations are kept in evaluation, but logits of all tokens are, and they "
                "come on top of the states"
            ),
        ),
        f"write per_device_eval_batch_size: {train.value}",
        sum=terms,
        severity="warning" if test.place is not None else "note",
    )


RULE = Rule(
    name="evaluation-batch-above-training",
    severity="warning",
    consequence="out-of-memory",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py: per_device_eval_batch_size is 8 by "
            "default; loss/loss_utils.py `ForCausalLMLoss`: logits.float()"
        ),
        "zai-org/GLM-4#281: per_device_eval_batch_size 4 beside a training batch of 1",
    ),
    check=_check,
)
