"""The example scripts of diffusers: their commands, their flags, and a view for the account.

The kind of the view, `EXAMPLE`, tells what differs. Only scripts that train one denoiser by itself
have one, and only where all that the account asks for is written.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

from tunec.compiler.diagnostics.wording import nearly
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.views import view
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace

KIND: Final = "diffusers"
_FILE: Final = "diffusers/examples.json"
"""Written by `tunec.targets.generate_example_flags` from the scripts of 15 releases."""

_LIKE: Final = 0.88
_MOST_STRANGE: Final = 2
"""Flags like none of an example's, above which a script is another's of the same name: peft's
examples/boft_dreambooth has a train_dreambooth.py, too."""


def commands(run: LintContext) -> Iterator[tuple[Document, str]]:
    """The flags of each example that the run starts, with the name of its script."""
    launched: dict[str, str] = {}
    for each in run.documents:
        if each.kind == "launch" and not each.is_view:
            launched[each.name] = _script(each.value("script"))
        if each.kind == KIND:
            script = launched.get(each.name, "")
            yield each, "" if _is_of_another(each, script) else script


def _is_of_another(document: Document, script: str) -> bool:
    """Whether flags like none of the example's tell another script of the same name."""
    flags = scripts().get(script, {}).get("flags", ())
    strange = [path for path in document.found if not is_flag(path, flags)]
    return sum(not is_near(path, flags) for path in strange) > _MOST_STRANGE


def is_flag(path: str, flags: Sequence[str]) -> bool:
    """Whether it is a flag, or the beginning of one, which argparse takes for it."""
    return any(flag.startswith(path) for flag in flags)


def is_near(path: str, flags: Sequence[str]) -> bool:
    """Whether it is nearly a flag."""
    return nearly(path, frozenset(flags), _LIKE) is not None


def _script(words: Any) -> str:
    """`train_dreambooth_lora` of the words behind a launcher."""
    is_list = isinstance(words, Sequence) and not isinstance(words, str)
    first = words[0] if is_list and words else words
    return PurePath(first).stem if isinstance(first, str) else ""


@cached()
def scripts() -> Mapping[str, Mapping[str, Sequence[str]]]:
    """By script: `flags` that some release takes, and `required` by every one."""
    found: Mapping[str, Mapping[str, Sequence[str]]] = schema(_FILE)["scripts"]
    return found


@cached()
def choices() -> Mapping[str, Sequence[str]]:
    """The words of flags that take no others, in every script."""
    found: Mapping[str, Sequence[str]] = schema(_FILE)["choices"]
    return found


@cached()
def types() -> Mapping[str, str]:
    """`int`, `float`, `switch` or `many` of flags that are alike in every script; else text."""
    found: Mapping[str, str] = schema(_FILE)["types"]
    return found


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
