"""Logits of all evaluation batches are kept on the device."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.evaluation.asked import GIB, is_loss, never_evaluates
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.sequence.length import longest

_FREES = ("eval_accumulation_steps", "batch_eval_metrics", "predict_with_generate")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf"):
        metric = document.get("metric_for_best_model")
        if metric is None or is_loss(metric.value) or not isinstance(metric.value, str):
            continue
        if document.is_view or never_evaluates(document) or _is_freed(document):
            continue
        yield _finding(metric, _terms(run))


def _is_freed(document: Document) -> bool:
    return any(document.value(key) or key in document.unknown for key in _FREES)


def _terms(run: Run) -> tuple[Term, ...]:
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


def _finding(metric: Place, terms: tuple[Term, ...]) -> Finding:
    each = f", {terms[-1].value / GIB:.1f} GiB for each batch" if terms else ""
    return Finding(
        f"whether {metric.value} is computed from logits that stay on the device{each}",
        (metric.label("needs predictions"),),
        (
            (
                "without eval_accumulation_steps they are gathered from all processes and kept "
                "on the "
                "device until the last batch, unless preprocess_logits_for_metrics makes them small"
            ),
        ),
        "write eval_accumulation_steps: 1, or batch_eval_metrics: true",
        sum=terms,
        certain=False,
    )


RULE = Rule(
    name="logits-kept-on-device",
    severity="warning",
    consequence="out-of-memory",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 trainer.py `evaluation_loop`: all_preds.add(logits), "
            "to_cpu_and_numpy only every eval_accumulation_steps"
        ),
    ),
    check=_check,
)
