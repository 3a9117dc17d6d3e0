"""Rules about what evaluation computes, keeps and generates."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.facts.training_loop import (
    GIB,
    STRATEGIES,
    evaluates,
    is_loss,
    is_whole,
    longest,
    never_evaluates,
)
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

_FAR = 4
"""The reported ratio of the evaluation batch to the micro batch."""
_FLOAT32 = 4
_MUCH_GIB = 16
"""The size of logits from which the finding is a warning on any device: the largest devices have
288 GB, most 24 to 80."""


@rule(
    "note",
    "out-of-memory",
    consumers=("transformers",),
    reads=keys("trainer", *STRATEGIES),
    hardware=True,
)
def evaluation_batch_above_training(run: LintContext) -> Iterator[Finding]:
    """Evaluation uses a far larger batch than training."""
    train = run.effective("trainer", "per_device_train_batch_size")
    test = run.effective("trainer", "per_device_eval_batch_size")
    if not is_whole(train.value) or not is_whole(test.value) or train.place is None:
        return
    if train.value < 1 or test.value < _FAR * train.value or not evaluates(run):
        return
    terms = _logits(run, test.value)
    if test.place is None and not terms:
        return
    found = _evaluation_finding(train, test, terms)
    is_much = terms and _is_too_much(run, terms[-1])
    is_known = test.place is not None and terms and terms[-1].value >= _MUCH_GIB * GIB
    yield replace(found, severity="warning" if is_much or is_known else "note")


def _is_too_much(run: LintContext, logits: Term) -> bool:
    """Whether the logits alone exceed a device's memory, if the trainer computes them at once."""
    device = run.environment.weakest
    is_whole_there = bool(run.of("hf", "llamafactory")) and not run.of("sft", "dpo")
    return is_whole_there and device is not None and logits.value > device.memory


def _logits(run: LintContext, batch: int) -> tuple[Term, ...]:
    """The largest tensor of an evaluation: fp32 logits of every token."""
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


def _evaluation_finding(train: Effective, test: Effective, terms: tuple[Term, ...]) -> Finding:
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
    )


generation_beside_loss_only = rows(
    "generation-beside-loss-only",
    "warning",
    "silent",
    consumers=("transformers",),
    rows=(
        Row(
            "trainer:predict_with_generate=true & prediction_loss_only=true",
            "predict_with_generate does nothing beside prediction_loss_only",
            label="asks for answers",
            beside_label="the loss alone",
            why="evaluation then generates nothing, and compute_metrics is never called",
            help="leave prediction_loss_only out",
        ),
    ),
)


_KEYS: Final = ("generation_max_length", "generation_num_beams")
_ASKS: Final = "predict_with_generate"


@rule("warning", "silent", consumers=("transformers",), reads=keys("hf", *_KEYS), unless="declared")
def generation_keys_unread(run: LintContext) -> Iterator[Finding]:
    """Evaluation has settings for generation, but does not generate."""
    for document in run.of("hf"):
        if document.is_view or _ASKS in document.unknown or document.value(_ASKS) is True:
            continue
        said = [each for key in _KEYS if (each := document.get(key)) and each.value]
        if not said:
            continue
        off = document.get(_ASKS)
        yield Finding(
            f"{said[0].path} does nothing without predict_with_generate",
            (said[0].label("how to generate"), *also(off, "off")),
            ("evaluation and prediction compute a loss and logits, and generate nothing",),
            f"write predict_with_generate: true, or leave {said[0].path} out",
        )


_LENGTHS: Final = (
    *("generation_max_length", "generation_config", "max_new_tokens", "val_max_target_length"),
    *("max_length", "max_target_length"),
)
"""Keys for the length of generated text. The last is a flag of transformers' examples and of
THUDM/ChatGLM-6B ptuning/main.py, which use it for that."""


generation_length_missing = rows(
    "generation-length-missing",
    "warning",
    "silent",
    consumers=("transformers",),
    rows=(
        Row(
            "hf:predict_with_generate=true",
            "predict_with_generate is not told generation_max_length",
            label="how long",
            why="the model's own generation_config decides; by default, generation ends at "
            "20 tokens, the prompt of a decoder counted in",
            help="write generation_max_length, prompt included",
            beside=(
                f"no {'|'.join(_LENGTHS)}",
                "no deepspeed:zero_optimization.stage=3",  # generation there is a fault of its own
            ),
            files_only=True,
        ),
    ),
)


_FREES = ("eval_accumulation_steps", "batch_eval_metrics", "predict_with_generate")


@rule("warning", "out-of-memory", consumers=("transformers",), reads=("hf:metric_for_best_model",))
def logits_kept_on_device(run: LintContext) -> Iterator[Finding]:
    """Logits of all evaluation batches are kept on the device."""
    for document in run.of("hf"):
        metric = document.get("metric_for_best_model")
        if metric is None or is_loss(metric.value) or not isinstance(metric.value, str):
            continue
        if document.is_view or never_evaluates(document) or _is_freed(document):
            continue
        yield _logits_finding(metric, _terms(run))


def _is_freed(document: Document) -> bool:
    return any(document.value(key) or key in document.unknown for key in _FREES)


def _terms(run: LintContext) -> tuple[Term, ...]:
    batch = run.effective("trainer", "per_device_eval_batch_size").value
    length, world, model = longest(run), run.data_parallel, run.model
    vocabulary = model.architecture.vocab if model is not None else None
    factors = (batch, length, vocabulary)
    if not all(is_whole(each) and each > 0 for each in factors):
        return ()
    count = batch * length * vocabulary * (world or 1)
    return (
        Term("samples of a batch", batch * (world or 1), "samples"),
        Term("tokens of each", length, "tokens"),
        Term("vocabulary", vocabulary or 0, "numbers"),
        Term("logits in fp32 of one batch", count * 4, "bytes"),
    )


def _logits_finding(metric: Place, terms: tuple[Term, ...]) -> Finding:
    each = f", {terms[-1].value / GIB:.1f} GiB for each batch" if terms else ""
    return Finding(
        f"whether {metric.value} is computed from logits that stay on the device{each}",
        (metric.label("needs predictions"),),
        (
            (
                "without eval_accumulation_steps they are gathered from all processes and kept on "
                "the device until the last batch, unless preprocess_logits_for_metrics makes them "
                "small"
            ),
        ),
        "write eval_accumulation_steps: 1, or batch_eval_metrics: true",
        sum=terms,
        certain=False,
    )


@rule(
    "error",
    "step",
    consumers=("transformers",),
    reads=keys("hf|llamafactory", "prediction_loss_only"),
)
def metric_of_the_loss_only(run: LintContext) -> Iterator[Finding]:
    """A metric is to choose the best model, but predictions are discarded."""
    for document in run.of("hf", "llamafactory"):
        metric, only = map(document.get, ("metric_for_best_model", "prediction_loss_only"))
        if metric is None or only is None or only.value is not True or document.is_view:
            continue
        if not isinstance(metric.value, str) or is_loss(metric.value) or never_evaluates(document):
            continue
        yield Finding(
            f"prediction_loss_only computes no metric_for_best_model {metric.value}",
            (metric.label("never computed"), only.label("", primary=False)),
            ("KeyError at the first evaluation: it is not found in the evaluation metrics",),
            "remove prediction_loss_only, or take the loss",
            Fix((only.removed(),), "unsafe"),
        )
