"""4 and 8 bits are both asked for."""

from collections.abc import Iterator

from tunec.compiler.lints.quantization.base import LOADERS
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of(*LOADERS, "axolotl"):
        four, eight = document.get("load_in_4bit"), document.get("load_in_8bit")
        if document.is_view or four is None or eight is None:
            continue
        if four.value is not True or eight.value is not True:
            continue
        silent = document.kind == "axolotl" and document.value("adapter") != "qlora"
        yield Finding(
            "`load_in_4bit` and `load_in_8bit` are both true",
            (eight.label(""), four.label("", primary=False)),
            (
                "Axolotl loads in 8 bits for `lora`, without a message"
                if silent
                else "You can't use 8 bit and 4 bit precision at the same time",
            ),
            "keep the one that is meant",
            consequence="silent" if silent else "load" if document.kind == "model" else None,
        )


RULE = Rule(
    name="four-and-eight-bits",
    severity="error",
    consequence="parse",
    consumers=("trl", "axolotl", "transformers"),
    sources=(
        "trl 0.8.6 to 1.16.0 trainer/model_config.py `ModelConfig.__post_init__`: ValueError",
        (
            "axolotl 0.8.1 to 0.19.0 utils/schemas/peft.py `validate_qlora`; 0.19.0 "
            "loaders/model.py `_set_quantization_config`"
        ),
        "transformers 5.23.0 utils/quantization_config.py `BitsAndBytesConfig`: ValueError",
    ),
    check=_check,
)
