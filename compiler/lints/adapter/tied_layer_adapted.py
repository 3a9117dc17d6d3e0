"""One end of tied embeddings is adapted or trained, and the other is not."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.adapter.lora import Lora, last, loras
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None or not run.model.architecture.tied:
        return
    tree = run.model.architecture
    ends = (last(tree.embedding), last(tree.head))
    for lora in loras(run):
        if lora.value("ensure_weight_tying") is True:
            continue
        for at, names in _asked(lora):
            touched = [each for each in names if last(each) in ends]
            if touched:
                yield _finding(run, lora, at, touched)
                break


def _asked(lora: Lora) -> Iterator[tuple[Place, tuple[str, ...]]]:
    targets, saved = lora.place("target_modules"), lora.place("modules_to_save")
    if targets is not None and isinstance(lora.targets, tuple):
        yield targets, lora.targets
    if saved is not None:
        yield saved, lora.saved


def _finding(run: Run, lora: Lora, at: Place, touched: list[str]) -> Finding:
    can_tie = lora.knows("ensure_weight_tying") and run.runs("peft>=0.18") is not False
    edit = lora.document.added(lora.key("ensure_weight_tying"), value=True) if can_tie else None
    return Finding(
        f"{quoted(touched, 'and')} is one end of a tied weight, and the two come apart",
        (at.label("embedding and head share this weight"),),
        (
            "the adapter or copy changes one of the two uses; merged or converted models lose it",
            "PEFT only warns",
        ),
        "write ensure_weight_tying: true" if can_tie else "leave tied layers out",
        Fix((edit,), "unsafe") if edit is not None else None,
    )


RULE = Rule(
    name="tied-layer-adapted",
    severity="warning",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "peft 0.18.1 to 0.21.2 tuners/tuners_utils.py: Model has `tie_word_embeddings=True` "
            "and a tied layer is part of the adapter, but `ensure_weight_tying` is not set"
        ),
        "huggingface/peft#2777, #2898",
    ),
    check=_check,
)
