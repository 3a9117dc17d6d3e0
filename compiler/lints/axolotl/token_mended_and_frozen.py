"""A token's embedding is mended at the start, and not among those that are trained."""

from collections.abc import Iterator
from typing import Any

from tunec.compiler.lints.axolotl.asked import configs
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in configs(run):
        mended = document.get("fix_untrained_tokens")
        trained = document.get("peft_trainable_token_indices")
        if mended is None or trained is None or not trained.value:
            continue
        lost = sorted(_numbers(mended.value) - _numbers(trained.value))
        if lost:
            yield Finding(
                f"token {lost[0]} is mended and not trained",
                (mended.label("mended once"), trained.label("not among them", primary=False)),
                (
                    "its embedding is set to the mean of the others, and stays there",
                    f"{len(lost)} of {len(_numbers(mended.value))} mended tokens are not trained",
                ),
                f"add {', '.join(map(str, lost))} to peft_trainable_token_indices",
            )


def _numbers(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {each for part in value.values() for each in _numbers(part)}
    given = value if isinstance(value, list) else [value]
    return {each for each in given if is_whole(each)}


RULE = Rule(
    name="token-mended-and-frozen",
    severity="warning",
    consequence="silent",
    consumers=("axolotl",),
    sources=(
        (
            "axolotl 0.13.2 and 0.19.0 utils/schemas/config.py "
            "`warn_peft_trainable_token_to_fix_untrained`: the token won't be trained on"
        ),
    ),
    check=_check,
)
