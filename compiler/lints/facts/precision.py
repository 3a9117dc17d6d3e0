"""Where a run asks for a precision, the words for dtypes, and devices below a capability."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Place
from tunec.compiler.lints.rule import keys

if TYPE_CHECKING:
    from tunec.schemas.hardware.profile import Device


LAUNCHED: Final = ("launch:flags.mixed_precision", "accelerate:mixed_precision")
"""Where a launcher is told a precision: what rules read that compare it with another one."""
LOADERS: Final = ("model", *TRL, "hf")
"""Kinds that may say in which dtype a model is loaded."""
_KEYS: Final = (
    *("dtype", "torch_dtype"),
    *("model_init_kwargs.dtype", "model_init_kwargs.torch_dtype"),
)
LOADED: Final = keys("model|trainer", *_KEYS)
"""What rules read that ask in which dtype a model is loaded."""
_WORDS: Final = {
    **dict.fromkeys(("float16", "fp16", "half"), "fp16"),
    **dict.fromkeys(("bfloat16", "bf16"), "bf16"),
    **dict.fromkeys(("float32", "fp32", "float"), "fp32"),
}


def turned_on(run: LintContext, asked: Iterable[tuple[str, str]], word: str) -> list[Place]:
    """The places where one of the keys is true, or that word; each place once."""
    found = (place for kind, key in asked for place in run.each(kind, key))
    places = [place for place in found if place.value is True or place.value == word]
    return list({(place.span, place.path): place for place in places}.values())


def device_name(device: "Device") -> str:
    """A device with its compute capability: `Tesla V100 (compute capability 7.0)`."""
    if device.compute_capability is None:
        return device.title
    major, minor = device.compute_capability
    return f"{device.title} (compute capability {major}.{minor})"


def dtype_of(word: Any) -> str | None:
    """`torch.float16`, `float16` and `half` as `fp16`; None for what is no dtype."""
    return _WORDS.get(str(word).removeprefix("torch."))


def loaded_in(run: LintContext, dtype: str) -> Iterator[Place]:
    """Where a file says that the model is loaded in a dtype."""
    for document in run.of(*LOADERS):
        for key in _KEYS:
            place = document.get(key)
            if place is not None and not document.is_view and dtype_of(place.value) == dtype:
                yield place


def on_deepspeed(run: LintContext) -> bool:
    """Whether DeepSpeed runs the model, which keeps fp32 copies and scales the loss itself."""
    return bool(run.of("deepspeed")) or run.value("parallel.engine") == "deepspeed"


def computes_in_half(run: LintContext) -> bool | None:
    """Whether the trainer computes in 16 bits; None where no file of a trainer was read."""
    both = [run.effective("trainer", key) for key in ("bf16", "fp16")]
    if any(each.value is True for each in both):
        return True
    launched = run.said("accelerate", "mixed_precision") or run.said(
        "launch", "flags.mixed_precision"
    )
    if launched is not None and launched.value in ("bf16", "fp16", "fp8"):
        return True
    return False if all(each.value is False for each in both) else None


def below(run: LintContext, major: int, minor: int = 0) -> "Device | None":
    """The weakest NVIDIA device of the run, if its compute capability is lower.

    Where the hardware mixes models and nothing says which of them are used, only if all are lower.
    """
    weakest = run.environment.weakest
    if weakest is None or weakest.compute_capability is None:
        return None
    every = run.environment.devices.values()
    visible = run.value("devices.visible")
    used = [weakest] if visible is not None else every
    asked = (each.compute_capability or (0, 0) for each in used)
    return weakest if all(capability < (major, minor) for capability in asked) else None


def with_capability(device: "Device") -> str:
    """A device with what is compiled for it: `Tesla V100 (compute capability 7.0)`, `(gfx942)`."""
    major, minor = device.compute_capability or (0, 0)
    return f"{device.title} ({device.gfx or f'compute capability {major}.{minor}'})"
