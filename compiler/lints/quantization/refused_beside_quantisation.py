"""Options that a trainer refuses beside a quantised base."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.quantization.base import quantised
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

Test = Callable[[Document, Any], bool]


def _on(_: Document, value: Any) -> bool:
    return value is True


def _is_several(_: Document, value: Any) -> bool:
    return len(value) > 1 if isinstance(value, list) else "," in str(value or "")


def _beside_adapter(document: Document, value: Any) -> bool:
    return value is True and bool(document.value("adapter_name_or_path"))


def _is_auto(document: Document, value: Any) -> bool:
    return bool(value == "auto") and document.value("do_train") is True


def _by_lora_in_8_bits(document: Document, value: Any) -> bool:
    return value is True and document.value("adapter") == "lora" and _in_8_bits(document)


def _in_8_bits(document: Document) -> bool:
    return document.value("load_in_8bit") is True


def _is_fp8(document: Document, value: Any) -> bool:
    return bool(value == "fp8" and document.value("base_model_precision") != "fp8-torchao")


_REFUSED: Final[tuple[tuple[str, str, Test, str], ...]] = (
    ("llamafactory", "pissa_init", _on, "use scripts/pissa_init.py first"),
    ("llamafactory", "resize_vocab", _on, "resize the base before it is quantised"),
    ("llamafactory", "create_new_adapter", _beside_adapter, "merge the old adapter first"),
    ("llamafactory", "adapter_name_or_path", _is_several, "merge the adapters first"),
    ("llamafactory", "quantization_device_map", _is_auto, "leave it out in training"),
    ("llamafactory", "fp8", _on, "turn one of the two off"),
    ("axolotl", "lora_mlp_kernel", _by_lora_in_8_bits, "use 4 bits, or no kernels"),
    ("axolotl", "lora_qkv_kernel", _by_lora_in_8_bits, "use 4 bits, or no kernels"),
    ("axolotl", "lora_o_kernel", _by_lora_in_8_bits, "use 4 bits, or no kernels"),
    ("simpletuner", "mixed_precision", _is_fp8, "use bf16"),
)
"""Kind, key, when it is refused, what helps."""


def _check(run: Run) -> Iterator[Finding]:
    base = quantised(run)
    if base is None:
        return
    for kind, key, is_refused, mended in _REFUSED:
        place = base.document.get(key) if base.document.kind == kind else None
        if place is not None and is_refused(base.document, place.value):
            yield _finding(place, base.place, mended)


def _finding(place: Place, base: Place, mended: str) -> Finding:
    return Finding(
        f"{place.path} beside a quantised base",
        (place.key_label("refused"), base.label("quantised", primary=False)),
        (),
        mended,
    )


RULE = Rule(
    name="refused-beside-quantisation",
    severity="error",
    consequence="parse",
    consumers=("llamafactory", "axolotl", "simpletuner"),
    sources=(
        (
            "llamafactory 0.9.1 to 0.9.5 hparams/parser.py `_verify_model_args`, `get_train_args` "
            "(`fp8`: 0.9.4)"
        ),
        "axolotl 0.9 to 0.19.0 utils/schemas/validation.py `check_lora_kernels_8bit`",
        (
            "simpletuner 4.10.1 helpers/configuration/cmd_args.py `parse_cmdline_args`: "
            "ValueError, --mixed_precision=fp8 with a quantized base model"
        ),
    ),
    check=_check,
)
