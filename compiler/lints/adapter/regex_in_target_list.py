"""A regular expression stands in a list of LoRA's targets."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.adapter.lora import Lora, adapters, is_plain
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_LISTS = ("target_modules", "modules_to_save", "exclude_modules")


def _check(run: Run) -> Iterator[Finding]:
    for lora in adapters(run):
        if (at := lora.place("target_modules")) is not None:
            yield from _targets(lora, at)
        if (at := lora.place("exclude_modules")) is not None:
            yield from _excluded(lora, at)


def _targets(lora: Lora, at: Place) -> Iterator[Finding]:
    names = lora.targets
    if not isinstance(names, tuple):
        return
    if len(names) == 1 and lora.document.kind in TRL:
        return  # TRL makes a string of it
    lost = [each for each in names if not is_plain(each)]
    if not lost:
        return
    is_all = len(lost) == len(names)
    yield Finding(
        f"{quoted(lost, 'and')} in a list of targets is no expression, and matches no module",
        (at.label("names, letter by letter"),),
        ("PEFT compiles target_modules only where it is one string",),
        "write one string: " + "|".join(f"({each})" for each in names),
        severity=None if is_all else "warning",
        consequence=None if is_all else "silent",
    )


def _excluded(lora: Lora, at: Place) -> Iterator[Finding]:
    lost = [each for each in lora.excluded if not is_plain(each)]
    if lost:
        yield Finding(
            f"{quoted(lost, 'and')} in a list of exclude_modules is no expression",
            (at.label("excludes nothing"),),
            ("PEFT compiles exclude_modules only where it is one string",),
            "write one string",
            severity="warning",
            consequence="silent",
        )


RULE = Rule(
    name="regex-in-target-list",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/tuners_utils.py `check_target_module_exists`: items of a "
            "list are compared by equality and `endswith`"
        ),
        "huggingface/peft#1206: it worked until 0.6.2",
    ),
    check=_check,
)
