"""A key that LLaMA-Factory refuses without another one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tunec.compiler.lints.conditions import Need, refused_alone, where
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.fragments import is_fragment
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_EVALUATED: Final = ("val_size", "eval_dataset")
_NO_DATA: Final = "there is nothing to evaluate on"
_WHOLE: Final = "the projector is trained whole, and an adapter trains nothing whole"
_OF_DATA: Final = (
    Need("do_train", ("dataset",), "there is nothing to train on"),
    Need("val_size", ("dataset",), "it is a share of that"),
)
"""Asked of whole files alone: what a part leaves out is not known."""
_NEEDS: Final = (
    Need("interleave_probs", ("mix_strategy~interleave",), "concatenated data is not drawn"),
    Need("streaming", ("max_steps",), "the length of a stream is not known"),
    Need("do_eval", _EVALUATED, _NO_DATA),
    Need("predict_with_generate", _EVALUATED, _NO_DATA),
    Need("do_predict", _EVALUATED, _NO_DATA),
    Need("eval_strategy!=no", _EVALUATED, _NO_DATA),
    Need("evaluation_strategy!=no", _EVALUATED, _NO_DATA),
    Need("do_predict & stage=sft", ("predict_with_generate",), "predictions are texts"),
    Need("train_mm_proj_only", ("finetuning_type=full",), _WHOLE, "llamafactory<0.9.2"),
    Need("export_quantization_bit", ("export_quantization_dataset",), "it is calibrated by data"),
)


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        if document.is_view:
            continue
        told: set[str] = set()
        is_part = is_fragment(document)
        for need in _NEEDS if is_part else (*_OF_DATA, *_NEEDS):
            is_left_out = is_part and need.why == _NO_DATA and document.get("dataset") is None
            for found in refused_alone(run, document, need):
                if need.why not in told:
                    yield replace(found, severity="warning") if is_left_out else found
                told.add(need.why)
        yield from _shares(document)


def _shares(document: Document) -> Iterator[Finding]:
    """As many shares as data sets."""
    shares = where(document, "interleave_probs")
    count = _count(shares)
    for key in ("dataset", "eval_dataset"):
        named = where(document, key)
        if shares is None or named is None or _count(named) in (0, count) or not count:
            continue
        yield Finding(
            f"{count} interleave_probs for {_count(named)} of {key}",
            (shares.label("one for each"), named.label("", primary=False)),
            (),
            f"write {_count(named)} numbers",
        )


def _count(at: Place | None) -> int:
    value = at.value if at is not None else None
    if isinstance(value, list):
        return len(value)
    return len([part for part in value.split(",") if part.strip()]) if isinstance(value, str) else 0


RULE = Rule(
    name="refused-without",
    severity="error",
    consequence="parse",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 hparams/parser.py `get_train_args`: Please specify "
            "`max_steps` in streaming mode; Please specify dataset for training; 0.9.5: Please "
            "make sure eval_dataset be provided or val_size >1e-6 (do_eval follows from "
            "eval_strategy), before it transformers' Trainer asks for an eval_dataset; "
            "hparams/data_args.py `__post_init__`: is only valid for interleaved mixing; 0.9.1 "
            "hparams/finetuning_args.py: `train_mm_proj_only` is only valid for full training"
        ),
        "hiyouga/LlamaFactory#584, #744, #5948",
    ),
    check=_check,
)
