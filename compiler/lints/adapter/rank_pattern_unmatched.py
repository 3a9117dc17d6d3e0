"""A pattern of ranks or alphas names modules that are no targets."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.adapter.lora import Lora, is_plain, last, loras
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for lora in loras(run):
        if not isinstance(lora.targets, tuple) or lora.document.kind in ("sft", "llamafactory"):
            continue
        for name in ("rank_pattern", "alpha_pattern"):
            at = lora.place(name)
            lost = _lost(lora, at.value) if at is not None else []
            if at is not None and lost:
                yield Finding(
                    f"{quoted(lost, 'and')} of {name} is none of LoRA's targets",
                    (at.label("not used"),),
                    ("a pattern only changes modules that are adapted anyway",),
                    "add it to target_modules, or remove it",
                )


def _lost(lora: Lora, patterns: object) -> list[str]:
    targets = lora.targets
    if not isinstance(patterns, dict) or not isinstance(targets, tuple):
        return []
    ends = {last(each) for each in targets}
    return [
        each
        for each in patterns
        if isinstance(each, str) and is_plain(each) and last(each) not in ends
    ]


RULE = Rule(
    name="rank-pattern-unmatched",
    severity="warning",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/lora/model.py `LoraModel._create_and_replace`: patterns "
            "are asked for targeted modules only; 0.21.2 warns of keys that were ignored"
        ),
    ),
    check=_check,
)
