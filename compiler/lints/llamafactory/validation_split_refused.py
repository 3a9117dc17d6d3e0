"""A validation share beside what it cannot stand with."""

from collections.abc import Iterator

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        share = document.get("val_size")
        if document.is_view or share is None or not isinstance(share.value, int | float):
            continue
        if isinstance(share.value, bool) or share.value <= 1e-6:
            continue
        own, stream = document.get("eval_dataset"), document.get("streaming")
        if own is not None and own.value:
            yield _finding(share, own, "eval_dataset", "keep one of them")
        elif stream is not None and stream.value is True and share.value < 1:
            yield _finding(share, stream, "streaming", "write a number of samples")


def _finding(share: Place, other: Place, name: str, mended: str) -> Finding:
    return Finding(
        f"val_size {share.value} is refused beside {name}",
        (share.label("refused"), other.label("", primary=False)),
        (),
        mended,
    )


RULE = Rule(
    name="validation-split-refused",
    severity="error",
    consequence="parse",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 hparams/data_args.py `__post_init__`: Cannot specify "
            "`val_size` if `eval_dataset` is not None; Streaming mode should have an integer val "
            "size"
        ),
    ),
    check=_check,
)
