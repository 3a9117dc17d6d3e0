"""LoRA's rank is zero or less."""

from collections.abc import Iterator

from tunec.compiler.lints.adapter.lora import Lora, loras, number
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for lora in loras(run):
        for at in _ranks(lora):
            rank = number(at.value)
            if rank is not None and rank < 1:
                yield Finding(
                    f"LoRA's rank is {at.value}",
                    (at.label("has to be 1 or more"),),
                    ("PEFT refuses a rank below 1",),
                    "write 8 or 16",
                )


def _ranks(lora: Lora) -> Iterator[Place]:
    if (at := lora.place("r")) is not None:
        yield at
    pattern = lora.place("rank_pattern")
    if pattern is not None and isinstance(pattern.value, dict):
        for path, place in lora.document.found.items():
            if path.startswith(f"{lora.key('rank_pattern')}."):
                yield place


RULE = Rule(
    name="lora-rank-not-positive",
    severity="error",
    consequence="init",
    consumers=("peft",),
    sources=(
        (
            "peft 0.10.0 to 0.21.2 tuners/lora/layer.py `LoraLayer.update_layer`: `r` should be a "
            "positive integer value"
        ),
    ),
    check=_check,
)
