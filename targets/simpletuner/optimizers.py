"""SimpleTuner's optimizers: their names, their defaults, and how their settings are written.

`--adam_beta1` and similar flags reach DeepSpeed's optimizer only. Every other optimizer has its own
defaults, changed by `--optimizer_config=weight_decay=0.1,eps=1e-08` and `--optimizer_beta1/2`
(helpers/training/optimizer_param.py, `optimizer_choices` and `convert_arg_to_parameters`, 3.1.6 and
4.10.1).
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.ir.slots import Optimizer
from tunec.schemas.terms import OptimizerKernel, OptimizerName

Settings = Mapping[str, float | bool]


class Choice(Struct, frozen=True):
    """A value of `--optimizer` that corresponds to one of our algorithms."""

    word: str
    name: OptimizerName
    kernel: OptimizerKernel | None
    """The implementation that runs; None: settings `fused` and `foreach` choose among torch's."""
    betas: tuple[float, float] | None
    epsilon: float | None
    weight_decay: float


CHOICES: Final = (
    Choice("torch-adamw", "adamw", None, (0.9, 0.999), 1e-8, 0.01),
    Choice("adamw_bf16", "adamw_bf16", "own", (0.9, 0.999), 1e-6, 0.01),
    Choice("bnb-adamw8bit", "adamw_8bit", "bitsandbytes", (0.9, 0.999), 1e-6, 0.01),
    Choice("bnb-adamw8bit-paged", "paged_adamw_8bit", "bitsandbytes", (0.9, 0.999), 1e-6, 0.01),
    Choice("bnb-adamw-paged", "paged_adamw_32bit", "bitsandbytes", (0.9, 0.999), 1e-6, 0.01),
    Choice("optimi-lion", "lion", "own", (0.9, 0.99), None, 0.0),
    Choice("bnb-lion8bit", "lion_8bit", "bitsandbytes", (0.9, 0.99), None, 0.0),
    Choice("bnb-lion8bit-paged", "paged_lion_8bit", "bitsandbytes", (0.9, 0.99), None, 0.0),
    Choice("bnb-lion-paged", "paged_lion_32bit", "bitsandbytes", (0.9, 0.99), None, 0.0),
    Choice("torch-sgd", "sgd", None, None, None, 0.0),
)

_KERNELS: Final[Mapping[OptimizerKernel, Settings]] = {
    "fused": {"fused": True},
    "foreach": {"foreach": True},
    "loop": {"foreach": False},
}
"""The switches of torch.optim.AdamW and SGD (torch 2.13, `_default_to_fused_or_foreach`)."""


def choice_of(optimizer: Optimizer) -> Choice | None:
    """SimpleTuner's choice for an optimizer; None if it has no equivalent."""
    for choice in CHOICES:
        kernels = _KERNELS if choice.kernel is None else (choice.kernel,)
        if choice.name == optimizer.name and optimizer.kernel in kernels:
            return choice
    return None


def worded(word: str) -> Choice | None:
    """The choice of that name."""
    return next((choice for choice in CHOICES if choice.word == word), None)


def settings_of(optimizer: Optimizer, choice: Choice) -> dict[str, float | bool]:
    """All settings of `optimizer_config`, so that no release's default matters."""
    settings: dict[str, float | bool] = {"weight_decay": optimizer.weight_decay}
    if choice.epsilon is not None:
        settings["eps"] = optimizer.epsilon
    if choice.kernel is None:
        settings |= _KERNELS[optimizer.kernel]
    return settings


def write_settings(settings: Settings) -> str:
    """`weight_decay=0.1,eps=1e-08`; the parser reads a number as a float by its point or `e-`."""
    return ",".join(f"{name}={_word(value)}" for name, value in settings.items())


def _word(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(float(value))


def read_settings(text: str) -> dict[str, float | bool | str]:
    """The settings in a text; a value that is neither number nor boolean stays a text."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): _value(value.strip()) for name, _, value in pairs}


def _value(word: str) -> float | bool | str:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        return float(word)
    except ValueError:
        return word


def kernel_of(choice: Choice, settings: Mapping[str, Any]) -> OptimizerKernel:
    """The implementation that runs; on CUDA torch uses `foreach` by default."""
    if choice.kernel is not None:
        return choice.kernel
    if settings.get("fused") is True:
        return "fused"
    return "loop" if settings.get("foreach") is False else "foreach"
