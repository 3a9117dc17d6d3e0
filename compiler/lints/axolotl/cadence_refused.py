"""When Axolotl saves and evaluates is said in a way that it refuses."""

from collections.abc import Iterator

from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.batch.counts import is_positive
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        yield from _strategies(document)
        yield from _without_data(document)
        yield from _early(document)


def _strategies(document: Document) -> Iterator[Finding]:
    for strategy, interval in (
        ("save_strategy", "save_steps"),
        ("eval_strategy", "eval_steps"),
        ("eval_strategy", "evals_per_epoch"),
    ):
        at, word = document.get(interval), document.get(strategy)
        if at is None or word is None or not at.value or not word.value or word.value == "steps":
            continue
        yield Finding(
            f"{interval} beside {strategy} {word.value}",
            (at.label("refused"), word.label("", primary=False)),
            ("an interval in steps goes with the strategy steps alone",),
            f"write {strategy}: steps, or remove {interval}",
        )


def _without_data(document: Document) -> Iterator[Finding]:
    share = document.get("val_set_size")
    if share is None or share.value != 0 or document.value("test_datasets"):
        return
    word = document.get("eval_strategy")
    asked = [each for key in ("eval_steps", "eval_strategy") if (each := document.get(key))]
    first = next((each for each in asked if each.value), None)
    if first is not None and (word is None or word.value != "no"):
        yield Finding(
            f"{first.path} with val_set_size 0",
            (first.label("refused"), share.label("nothing to evaluate on", primary=False)),
            (),
            f"remove {first.path}, or set val_set_size",
        )


def _early(document: Document) -> Iterator[Finding]:
    patience = document.get("early_stopping_patience")
    save, evaluate = document.get("save_steps"), document.get("eval_steps")
    if patience is None or not patience.value or save is None or evaluate is None:
        return
    if (
        not (is_positive(save.value) and is_positive(evaluate.value))
        or save.value % evaluate.value == 0
    ):
        return
    yield Finding(
        f"early stopping with save_steps {save.value}, no multiple of eval_steps {evaluate.value}",
        (
            patience.label("refused"),
            save.label("", primary=False),
            evaluate.label("", primary=False),
        ),
        ("the best model is one that was saved and evaluated",),
        f"write save_steps: {max(1, round(save.value / evaluate.value)) * evaluate.value}",
    )


RULE = Rule(
    name="cadence-refused",
    severity="error",
    consequence="parse",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.8.1 utils/schemas/config.py, 0.13.2 and 0.19.0 utils/schemas/validation.py "
            "`check_saves`, `check_evals`: save_strategy and save_steps mismatch; eval_steps and "
            "eval_strategy are not supported with val_set_size == 0; `check_early_stopping`"
        ),
    ),
    check=_check,
)
