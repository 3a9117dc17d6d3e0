"""Options of a quantisation that is not turned on."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.quantization.base import LOADERS
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TRL: Final = ("use_bnb_nested_quant", "bnb_4bit_quant_type", "bnb_4bit_quant_storage")
_LOADED: Final = (*_TRL, "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant")
"""Those of transformers' BitsAndBytesConfig, where a file holds what a model is loaded with."""
_OPTIONS: Final = {
    **dict.fromkeys(LOADERS, (_TRL, ("load_in_4bit",))),
    "model": (_LOADED, ("load_in_4bit", "quantization_config")),
    "axolotl": (("bnb_config_kwargs",), ("load_in_4bit", "load_in_8bit")),
    "llamafactory": (
        ("double_quantization", "quantization_type", "quantization_method"),
        ("quantization_bit", "export_quantization_bit"),
    ),
}
"""By kind: options, and what turns the quantisation on that they shape."""
_OFF: Final = (None, False, "none", "None")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of(*_OPTIONS):
        if document.is_view:
            continue
        options, switches = _OPTIONS[document.kind]
        if any(document.value(key) not in _OFF for key in switches) or _unknown(document, switches):
            continue
        said = [place for key in options if (place := document.get(key)) and place.value]
        if said:
            yield _finding(said, switches)


def _unknown(document: Document, keys: tuple[str, ...]) -> bool:
    return any(key in document.unknown for key in keys)


def _finding(said: list[Place], switches: tuple[str, ...]) -> Finding:
    names = ", ".join(each.path for each in said)
    return Finding(
        f"{names} without {' or '.join(switches[:1])}: nothing is quantised",
        tuple(each.key_label("does nothing", primary=at == 0) for at, each in enumerate(said)),
        ("the base is loaded in 16 or 32 bits: two to eight times the memory",),
        f"set {switches[0]}, or remove {'it' if len(said) == 1 else 'them'}",
    )


RULE = Rule(
    name="quantization-options-ignored",
    severity="warning",
    consequence="silent",
    consumers=("trl", "axolotl", "llamafactory"),
    sources=(
        "trl 0.8.6 to 1.16.0 trainer/utils.py `get_quantization_config`: only under load_in_4bit",
        "axolotl 0.19.0 loaders/model.py `_set_quantization_config`",
        "llamafactory 0.9.1 to 0.9.5 model/model_utils/quantization.py `configure_quantization`",
    ),
    check=_check,
)
