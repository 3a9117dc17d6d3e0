"""GRPO is to sample its completions at temperature 0."""

from collections.abc import Iterator

from tunec.compiler.lints.preference.asked import preferences, real, trl
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document, name in preferences(run):
        at = trl(document, "temperature")
        value = real(at.value) if at is not None else None
        if name == "grpo" and at is not None and value is not None and value <= 0:
            yield Finding(
                f"temperature is {at.value}: every completion of a group is the same",
                (at.label("nothing to compare"),),
                (
                    "equal completions have equal rewards, and so no advantage",
                    "log-probabilities are divided by the temperature too",
                ),
                "write 1.0",
            )


RULE = Rule(
    name="temperature-of-zero",
    severity="error",
    consequence="step",
    consumers=("trl",),
    sources=(
        (
            "trl 0.17.0 to 1.16.0 trainer/grpo_trainer.py `_get_per_token_logps`: logits / "
            "self.temperature"
        ),
        (
            "transformers 5.23.0 generation/logits_process.py `TemperatureLogitsWarper`: has to "
            "be a strictly positive float"
        ),
    ),
    check=_check,
)
