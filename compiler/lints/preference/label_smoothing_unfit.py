"""Label smoothing that the preference loss refuses, needs or does not read."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.preference.asked import preferences, real
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_READ: Final = ("sigmoid", "robust", "exo_pair", "sigmoid_norm", "aot", "aot_unpaired", "aot_pair")


def _check(run: Run) -> Iterator[Finding]:
    for document, name in preferences(run):
        if name == "dpo" and document.kind == "dpo":
            yield from _of_trl(run, document)
        elif name in ("dpo", "orpo", "simpo") and document.kind == "llamafactory":
            yield from _of_factory(document)


def _of_trl(run: Run, document: Document) -> Iterator[Finding]:
    loss, at = document.get("loss_type"), document.get("label_smoothing")
    said = loss.value if loss is not None else "sigmoid"
    losses = [str(each) for each in (said if isinstance(said, list) else [said])]
    share = real(at.value) if at is not None else 0.0
    if share is None:
        return
    is_exo = "exo_pair" in losses and share == 0 and loss is not None
    if loss is not None and is_exo and run.runs("trl<1.3"):
        return  # 0.001 is taken then
    if loss is not None and is_exo:
        yield Finding(
            "exo_pair needs a label_smoothing above 0",
            (loss.label("divides by it"), *([at.label("", primary=False)] if at else [])),
            (),
            "write label_smoothing: 0.001",
            severity=None if run.runs("trl>=1.3") else "warning",
        )
    elif at is not None and share > 0 and not set(losses) & set(_READ):
        yield Finding(
            f"label_smoothing does nothing for {', '.join(losses)}",
            (at.label("not used"), *([loss.label("", primary=False)] if loss else [])),
            (),
            "remove it",
            severity="warning",
            consequence="silent",
        )
    elif (
        at is not None
        and share >= 0.5
        and "robust" in losses
        and run.runs("trl>=0.29") is not False
    ):
        yield Finding(
            f"label_smoothing {share:g} is refused with the loss robust",
            (at.label("from 0 to below 0.5"), *([loss.label("", primary=False)] if loss else [])),
            ("it divides by 1 - 2 x label_smoothing",),
            "write 0.1",
            severity=None if run.runs("trl>=0.29") else "warning",
        )
    elif at is not None and share >= 0.5:
        yield Finding(
            f"label_smoothing {share:g} takes more than half of the preferences for wrong",
            (at.label("from 0 to below 0.5"),),
            (),
            "write 0.1 or less",
            severity="warning",
            consequence="silent",
        )


def _of_factory(document: Document) -> Iterator[Finding]:
    at, loss = document.get("dpo_label_smoothing"), document.get("pref_loss")
    share = real(at.value) if at is not None else None
    if at is None or share is None or share <= 1e-6 or loss is None or loss.value == "sigmoid":
        return
    yield Finding(
        f"dpo_label_smoothing is refused with pref_loss {loss.value}",
        (at.label("only for sigmoid"), loss.label("", primary=False)),
        (),
        "remove it, or write pref_loss: sigmoid",
        consequence="parse",
    )


RULE = Rule(
    name="label-smoothing-unfit",
    severity="error",
    consequence="init",
    consumers=("trl", "llamafactory"),
    sources=(
        (
            "trl 1.3.0 to 1.16.0 trainer/dpo_trainer.py: Label smoothing must be greater than 0.0"
            " when using 'exo_pair' loss (0.12.2 to 0.27.2 take 0.001 for 0); `dpo_loss`: read by"
            " sigmoid, robust, exo_pair and aot; 0.29.0 to 1.16.0 `__init__`: should lie in"
            " [0.0, 0.5) for the 'robust' loss, which 0.28.0 does not ask"
        ),
        (
            "llamafactory 0.9.1 to 0.9.5 hparams/finetuning_args.py `__post_init__`: "
            "`dpo_label_smoothing` is only valid for sigmoid loss function"
        ),
    ),
    check=_check,
)
