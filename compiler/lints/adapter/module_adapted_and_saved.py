"""A module is both a target of LoRA and trained in full."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.adapter.lora import adapters, last
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for lora in adapters(run):
        saved, target = lora.place("modules_to_save"), lora.place("target_modules")
        if saved is None or target is None or not isinstance(lora.targets, tuple):
            continue
        named = {last(each) for each in lora.targets}
        both = [each for each in lora.saved if last(each) in named]
        if both:
            yield Finding(
                f"{quoted(both, 'and')} is a target of {lora.method} and in modules_to_save too",
                (target.label("not adapted"), saved.label("trained in full", primary=False)),
                ("a full copy is trained and saved: far more memory than an adapter takes",),
                "name it in one of the two",
            )


RULE = Rule(
    name="module-adapted-and-saved",
    severity="warning",
    consequence="silent",
    consumers=("peft",),
    sources=(
        (
            "peft 0.15.2 to 0.21.2 tuners/tuners_utils.py `check_target_module_exists`: modules of "
            "modules_to_save count as excluded; before, both were done to the same module"
        ),
    ),
    check=_check,
)
