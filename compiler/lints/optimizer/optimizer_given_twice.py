"""`adafactor: true` beside another optimizer, which it replaces."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        old, new = document.get("adafactor"), document.get("optim")
        if old is None or new is None or old.value is not True or new.value == "adafactor":
            continue
        if run.runs("transformers>=5") is True or document.is_view:
            continue
        yield Finding(
            f"adafactor: true replaces optim {new.value}",
            (new.label("not used"), old.label("used", primary=False)),
            ("the older key sets optim once more, whatever it says",),
            "remove adafactor, or write optim: adafactor",
            Fix((old.removed(),), "unsafe"),
        )


RULE = Rule(
    name="optimizer-given-twice",
    severity="error",
    consequence="silent",
    consumers=("transformers<5",),
    sources=(
        (
            "transformers 4.40.2 to 4.57.6 training_args.py `__post_init__`: if self.adafactor: "
            "self.optim = OptimizerNames.ADAFACTOR"
        ),
    ),
    check=_check,
)
