"""A base is quantised in a form that transformers does not train, adapters or not."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.quantization.base import blocks, stored_in_fp8
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NEVER: Final = frozenset(
    {
        *("fbgemm_fp8", "higgs", "spqr", "vptq", "gguf", "nvfp4", "metal", "quark"),
        *("auto-round", "gemma"),
    }
)
"""transformers 5.23.0 quantizers/quantizer_*.py: `is_trainable` is false."""
_REFUSED: Final = "transformers>=5.23"
"""There a word of torchao is refused before (`quantization-setting-refused`)."""


_HAS_FP8: Final = (8, 9)
_NOT_YET: Final = "transformers<5.16"


def _check(run: Run) -> Iterator[Finding]:
    yield from _fp8(run)
    trainer = next(iter(run.of("trainer")), None)
    for block in blocks(run):
        at = block.document.get(f"{block.path}.quant_method")
        if at is None or (trainer is None and not _trains(block)):
            continue
        if any(block.value.get(f"load_in_{bits}bit") is True for bits in (4, 8)):
            continue
        if at.value in _NEVER:
            yield _finding(at, str(at.value), at)
        elif at.value == "torchao" and run.runs(_REFUSED) is not True:
            kind = block.document.get(f"{block.path}.quant_type")
            if kind is not None and "int4" in str(kind.value):
                yield _finding(kind, f"torchao's {kind.value}", at)


def _fp8(run: Run) -> Iterator[Finding]:
    """A checkpoint in blocks of FP8, which stays so on devices that have FP8."""
    name, device = stored_in_fp8(run), run.environment.weakest
    capability = device.compute_capability if device is not None else None
    if name is None or capability is None or capability < _HAS_FP8:
        return
    if name.document.kind not in ("hf", *TRL) or run.runs(_NOT_YET) is False:
        return
    yield Finding(
        "a base stored in FP8 is not trained, with an adapter or without",
        (name.label("published in FP8"),),
        ("the model is quantized with FP8, but that quantization method do not support training",),
        "load it with FineGrainedFP8Config(dequantize=True), or use a checkpoint in bf16",
        severity="warning" if run.runs(_NOT_YET) is None else None,
    )


def _trains(block: Place) -> bool:
    return any(block.document.get(key) for key in ("output_dir", "learning_rate"))


def _finding(at: Place, form: str, method: Place) -> Finding:
    return Finding(
        f"a base quantised by {form} is not trained, with an adapter or without",
        (at.label("refused"), *([method.label("", primary=False)] if method != at else [])),
        ("the model is quantized with a method that does not support training",),
        "use load_in_4bit: true, or a form that trains adapters (gptq, hqq, quanto, eetq)",
    )


RULE = Rule(
    name="quantisation-without-training",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.23.0 trainer_utils.py `validate_quantization_for_training`: that "
            "quantization method do not support training; 4.40.2 to 4.57.6 trainer.py "
            "`Trainer.__init__`; quantizers/quantizer_torchao.py `is_trainable`: 8 bits alone"
        ),
        (
            "transformers 4.51.3 to 5.15.1 quantizers/quantizer_finegrained_fp8.py `is_trainable`: "
            "False, in 5.23.0 True; below capability 8.9 it is expanded; huggingface/transformers"
            "#46736, MiniMax-AI/MiniMax-M2#48"
        ),
    ),
    check=_check,
)
