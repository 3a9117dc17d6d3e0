"""Prompts are to be streamed to a trainer that draws several answers to each."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.lints.conditions import where
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_REFUSED: Final[Mapping[str, str]] = {"grpo": "trl>=0.17,<1.9", "rloo": "trl>=0.22,<1.9"}
"""Releases that take no stream at all."""
_DISPATCH: Final = "accelerator_config.dispatch_batches=true"


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of(*_REFUSED):
        stream = where(document, "dataset_streaming=true")
        if document.is_view or stream is None:
            continue
        is_late, handed = run.runs("trl>=1.9"), where(document, _DISPATCH)
        if run.runs(_REFUSED[document.kind]):
            yield Finding(
                f"dataset_streaming is refused by {run.release('trl')}",
                (stream.label("refused"),),
                ("a prompt is repeated by its number in the data set, and a stream has none",),
                "write dataset_streaming: false, or use trl 1.9",
            )
        elif handed is not None and is_late is not False:
            yield Finding(
                "dispatch_batches true is refused beside dataset_streaming",
                (handed.label("refused"), stream.label("", primary=False)),
                ("each process has to read the stream itself, to see the answers to its prompts",),
                "write dispatch_batches: false",
                severity=None if is_late else "warning",
            )


RULE = Rule(
    name="stream-in-grouped-training",
    severity="error",
    consequence="init",
    consumers=("trl",),
    sources=(
        (
            "trl 0.17.0 to 1.8.0 trainer/grpo_trainer.py, 0.23.0 to 1.8.0 rloo_trainer.py "
            "`__init__`: NotImplementedError, Iterable datasets are not yet supported; 1.9.2 and "
            "1.16.0: Iterable datasets require `dispatch_batches=False`"
        ),
        "huggingface/trl#3213",
    ),
    check=_check,
)
