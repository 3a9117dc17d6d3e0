"""PEFT's own merging into packed bases, with what bitsandbytes makes on the way by its size.

PEFT 0.21 `tuners/lora/bnb.py` runs as it is, and calls these in the place of bitsandbytes 0.50:
`nn/modules.py`, `Params4bit._quantize` and `Int8Params._quantize`; `functional.py`, `quantize_4bit`
and `dequantize_4bit`; `_ops.py`, `int8_vectorwise_dequant`.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import torch

from tunec.compiler.tracing.live.bitsandbytes_layers import QuantizedLinear
from tunec.compiler.tracing.live.kernels import replaced
from tunec.compiler.tracing.live.model_builder import DTYPES
from tunec.compiler.tracing.subject import Subject, Untraceable

_LIBRARY: Final = "bitsandbytes"
_BLOCK: Final = 64
"""`Params4bit.__new__`: the number of elements that share a scale by default."""
_SCALE_BLOCK: Final = 256


class Params4bit(torch.nn.Parameter):  # type: ignore[misc]  # torch is not typed
    """A packed weight of the class name that PEFT recognises, with its scales."""

    def __new__(cls, data: torch.Tensor, **options: Any) -> Any:
        """Take PEFT's input: a sum that is not packed yet, and how the old weight was packed."""
        made = torch.Tensor._make_subclass(cls, data, require_grad=False)  # noqa: SLF001
        made.quant_state = options["quant_state"]
        return made

    def to(self, *_: Any) -> Any:
        """Copy the weight to the device, and pack it there."""
        whole = torch.empty_like(self.data)
        blocks = -(-whole.numel() // _BLOCK)
        scales: tuple[torch.Tensor, ...] = (_floats(whole, blocks),)
        packed = torch.empty((whole.numel() + 1) // 2, 1, dtype=torch.uint8, device=whole.device)
        if self.quant_state.double:
            centred = _floats(whole, blocks)
            small = torch.empty(blocks, dtype=torch.uint8, device=whole.device)
            scales = (small, _floats(whole, -(-blocks // _SCALE_BLOCK)))
            del centred
        state = {**vars(self.quant_state), "dtype": whole.dtype, "scales": scales}
        return type(self)(packed, quant_state=SimpleNamespace(**state))


class Int8Params(torch.nn.Parameter):  # type: ignore[misc]  # torch is not typed
    """A parameter that is packed in 8 bits on the device, with a scale for each row."""

    def __new__(cls, data: torch.Tensor, **_: Any) -> Any:
        """Take PEFT's input: a sum that is not packed yet."""
        made = torch.Tensor._make_subclass(cls, data, require_grad=False)  # noqa: SLF001
        made.has_fp16_weights, made.SCB = False, None
        return made

    def to(self, *_: Any) -> Any:
        """Copy the sum to the device in fp16, to which the host casts it, and pack it there."""
        whole = torch.empty_like(self.data, dtype=torch.float16)
        packed = Int8Params(torch.empty_like(whole, dtype=torch.int8))
        packed.SCB = _floats(whole, whole.shape[0])
        return packed


def _floats(like: torch.Tensor, count: int) -> torch.Tensor:
    return torch.empty(count, dtype=torch.float32, device=like.device)


def _whole(_: torch.Tensor, state: SimpleNamespace) -> torch.Tensor:
    return torch.empty(state.shape, dtype=state.dtype, device="meta")


def _whole_from_int8(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """`packed * scales * (1 / 127)`; the first product is freed after the second."""
    return packed * scales.view(-1, 1) * (1 / 127)


@contextmanager
def repacking(subject: Subject) -> Iterator[None]:
    """Let PEFT merge adapters into packed bases, and unmerge them again.

    Raises Untraceable if PEFT has no such code.
    """
    if subject.workload.quantization.format == "none":
        yield
        return
    layer = importlib.import_module("peft.tuners.lora.layer")
    with ExitStack() as stack:
        stack.enter_context(_library())
        stack.enter_context(_on_host())
        eight = subject.workload.quantization.format == "int8"
        real = getattr(_of_peft(), "Linear8bitLt" if eight else "Linear4bit")
        for name in ("merge", "unmerge"):
            does = _for_packed(getattr(layer.Linear, name), getattr(real, name), subject)
            stack.enter_context(replaced(layer.Linear, name, does))
        yield


def _for_packed(
    plain: Callable[..., None], packed: Callable[..., None], subject: Subject
) -> Callable[..., None]:
    def does(layer: Any, *given: Any, **named: Any) -> None:
        base = layer.get_base_layer()
        if not isinstance(base, QuantizedLinear):
            return plain(layer, *given, **named)
        if not isinstance(base.weight, Params4bit | Int8Params):
            _as_bitsandbytes(base, subject)
        return packed(layer, *given, **named)

    return does


def _as_bitsandbytes(base: QuantizedLinear, subject: Subject) -> None:
    """Give a weight that is one storage the class and the attributes of bitsandbytes' own."""
    shape, quantization = (base.out_features, base.in_features), subject.workload.quantization
    packed = base.weight.data
    if quantization.format == "int8":
        elements = base.out_features * base.in_features
        weight = Int8Params(packed[:elements].view(torch.int8).view(shape))
        weight.SCB = _floats(packed, base.out_features)
        base.state = SimpleNamespace(SCB=None, reset_grads=lambda: None)
    else:
        dtype = DTYPES[quantization.compute]
        state = SimpleNamespace(shape=shape, dtype=dtype, double=quantization.double)
        weight = Params4bit(packed, quant_state=state)
    base.weight = weight


@contextmanager
def _library() -> Iterator[None]:
    """A module in place of bitsandbytes, with the functions that PEFT's merging uses."""
    module: Any = ModuleType(_LIBRARY)
    module.__spec__ = importlib.machinery.ModuleSpec(_LIBRARY, None)
    module.nn = SimpleNamespace(Params4bit=Params4bit, Int8Params=Int8Params)
    module.functional = SimpleNamespace(
        dequantize_4bit=_whole, int8_vectorwise_dequant=_whole_from_int8
    )
    before = sys.modules.get(_LIBRARY)
    sys.modules[_LIBRARY] = module
    try:
        yield
    finally:
        del sys.modules[_LIBRARY]
        if before is not None:
            sys.modules[_LIBRARY] = before


def _of_peft() -> Any:
    """A second `peft.tuners.lora.bnb`: the first is empty if bitsandbytes is not installed."""
    imports = importlib.import_module("peft.import_utils")
    spec = importlib.util.find_spec("peft.tuners.lora.bnb")
    if spec is None or spec.loader is None:
        raise Untraceable("the installed PEFT has no `tuners.lora.bnb`")
    module = importlib.util.module_from_spec(spec)
    with (
        replaced(imports, "is_bnb_available", lambda: True),
        replaced(imports, "is_bnb_4bit_available", lambda: True),
    ):
        spec.loader.exec_module(module)
    return module


@contextmanager
def _on_host() -> Iterator[None]:
    """Let the sum move to the host and back without host memory: meta tensors cannot be there."""
    plain = torch.Tensor.to

    def to(tensor: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
        return tensor if given == ("cpu",) else plain(tensor, *given, **named)

    with replaced(torch.Tensor, "to", to):
        yield
