"""Axolotl quantises to 4 bits for the adapter qlora only."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("axolotl"):
        adapter, four = document.get("adapter"), document.get("load_in_4bit")
        if adapter is None or four is None or adapter.value != "lora" or four.value is not True:
            continue
        if document.value("load_in_8bit") is True:
            continue
        yield Finding(
            "load_in_4bit with adapter lora: the base is not quantised",
            (four.label("does nothing"), adapter.label("not qlora", primary=False)),
            ("Axolotl builds a 4-bit config for `qlora` and an 8-bit one for `lora`, no other",),
            "use adapter: qlora",
            Fix((adapter.replaced("qlora"),), "safe"),
        )


RULE = Rule(
    name="four-bits-without-qlora",
    severity="error",
    consequence="silent",
    consumers=("axolotl>=0.13",),
    sources=(
        (
            "axolotl 0.13.2 and 0.19.0 loaders/model.py `_set_quantization_config`: adapter qlora "
            "with "
            "load_in_4bit, adapter lora with load_in_8bit; 0.8.1 hands load_in_4bit on as it is"
        ),
    ),
    check=_check,
)
