"""Parameters are to be adapted that the model does not have."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.adapter.lora import is_plain, loras
from tunec.compiler.lints.adapter.tree import parts
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    if run.model is None:
        return
    names = parts(run.model.architecture)
    for lora in loras(run):
        at = lora.place("target_parameters")
        if at is None or not isinstance(at.value, list):
            continue
        asked = [each for each in at.value if isinstance(each, str) and is_plain(each)]
        lost = [each for each in asked if not set(each.split(".")[:-1]) & names and "." in each]
        if lost and len(lost) == len(at.value) and not lora.value("target_modules"):
            yield Finding(
                f"{quoted(lost, 'and')} of target_parameters is no parameter of {run.model.path}",
                (at.label("matches nothing"),),
                ("PEFT refuses adapters that reach nothing",),
                "write the name of a parameter of this architecture",
            )


RULE = Rule(
    name="parameter-targets-match-nothing",
    severity="error",
    consequence="init",
    consumers=("peft>=0.17",),
    sources=(
        (
            "peft 0.17.1 to 0.21.2 tuners/tuners_utils.py `BaseTuner._inject_parameters`, "
            "`inject_adapter`; run: no modules were targeted"
        ),
    ),
    check=_check,
)
