"""An example of diffusers in the words of SimpleTuner's table, which the memory account can read.

What differs is told apart by the kind of the view: `EXAMPLE`. Only scripts that train one denoiser
by itself have one, and only where all that the account asks for is written.
"""

import re
from typing import Any, Final

from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.views import view
from tunec.schemas.frozen import replace

EXAMPLE: Final = "diffusers-run"
_SCRIPTS: Final = re.compile(r"train_(text_to_image|dreambooth)(_lora)?(_sdxl|_sd3|_flux)?\.py\Z")
_SAME: Final = (
    *("pretrained_model_name_or_path", "train_batch_size", "mixed_precision", "resolution"),
    "gradient_accumulation_steps",
)
_NEEDED: Final = ("pretrained_model_name_or_path", "train_batch_size", "mixed_precision")
_ELSEWHERE: Final = (
    *("bnb_quantization_config_path", "do_fp8_training", "offload", "use_adafactor"),
    "lora_layers",
)
"""Flags with which the denoiser is stored or stepped otherwise. Those with which more is trained or
kept than the denoiser (`train_text_encoder`, `use_ema`) leave what it takes by itself."""
_OPTIMIZERS: Final = ("adamw", "prodigy")
"""What `--optimizer` of the newer scripts takes; Prodigy keeps AdamW's two moments, and more."""
_SIDE: Final = 512
"""huggingface/diffusers 0.27.2 to 0.40.0: `--resolution` of these scripts, but 1024 of the XL."""


def example_view(document: Document, program: str) -> Document | None:
    """The view; None where the script, or a flag of it, is beyond the account.

    huggingface/diffusers 0.40.0 examples: LoRA of rank 4 with weights in the run's dtype; the whole
    denoiser in fp32 under autocast; AdamW of torch, or bitsandbytes' of 8 bits.
    """
    held = {key: at for key in _SAME if (at := document.get(key)) is not None}
    if not _SCRIPTS.search(program) or not all(key in held for key in _NEEDED):
        return None
    if any(document.get(key) for key in _ELSEWHERE) or set(_SAME) & document.unknown:
        return None
    if str(document.value("optimizer", "adamw")).lower() not in _OPTIMIZERS:
        return None
    base = held["pretrained_model_name_or_path"]
    recomputes = document.get("gradient_checkpointing")
    small = document.get("use_8bit_adam")
    told: dict[str, Any] = {
        "model_type": "lora" if "_lora" in program else "full",
        "lora_rank": document.value("rank", 4),
        "gradient_checkpointing": recomputes is not None,
        "optimizer": "torch-adamw" if small is None else "bnb-adamw8bit",
        "base_model_precision": "no_change",
    }
    if "_lora" not in program:
        del told["lora_rank"]
    if "resolution" not in held:
        told["resolution"] = _SIDE * (2 if "_sdxl" in program else 1)
    found = {**held, **{key: _as(base, value) for key, value in told.items()}}
    return view(document, EXAMPLE, found)


def _as(place: Place, value: Any) -> Place:
    return Place(place.document, place.path, replace(place.node, value=value))
