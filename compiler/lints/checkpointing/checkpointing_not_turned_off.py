"""LLaMA-Factory recomputes unless its own key turns that off."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OWN = "disable_gradient_checkpointing"


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("llamafactory"):
        said, own = document.get("gradient_checkpointing"), document.get(_OWN)
        if said is None:
            continue
        if said.value is False and (own is None or own.value is not True):
            yield _not_off(document, said, own)
        elif said.value is True and own is not None and own.value is True:
            yield _on_again(said, own)


def _not_off(document: Document, said: Place, own: Place | None) -> Finding:
    edit = own.replaced(True) if own else said.renamed(_OWN)
    edits = (edit,) if own else (edit, said.replaced(True))
    return Finding(
        "gradient_checkpointing: false does not turn it off",
        (said.label("LLaMA-Factory recomputes all the same"),),
        (f"it looks at {_OWN}, which is false by default",),
        f"set {_OWN}: true",
        Fix(edits, "unsafe") if document.format == "yaml" else None,
    )


def _on_again(said: Place, own: Place) -> Finding:
    return Finding(
        f"gradient_checkpointing: true turns on what {_OWN} turns off",
        (own.label("does nothing"), said.label("turns it on", primary=False)),
        ("the Trainer, of which LLaMA-Factory's is one, does it before the first step",),
        "remove one of the two",
    )


RULE = Rule(
    name="checkpointing-not-turned-off",
    severity="warning",
    consequence="silent",
    consumers=("llamafactory",),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 model/model_utils/checkpointing.py "
            "`prepare_model_for_training`: if not model_args.disable_gradient_checkpointing"
        ),
        "transformers 4.44.2 to 4.57.6 trainer.py `_inner_training_loop`",
    ),
    check=_check,
)
