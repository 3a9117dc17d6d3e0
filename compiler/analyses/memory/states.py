"""Training state per trained element: optimizer moments and what one step of it needs on top."""

from collections.abc import Iterable
from typing import Final

from packaging.version import Version

from tunec.compiler.analyses.memory.counts import Counts
from tunec.compiler.analyses.memory.dtypes import BYTES
from tunec.compiler.ir.slots import Optimizer, States
from tunec.schemas.terms import STEPS_IN_BACKWARD, OptimizerName

MASTER_BYTES: Final = 4
"""An fp32 copy of a trained parameter (ZeRO, arXiv 1910.02054, section 3.1)."""

_ADDS_IN_PLACE: Final = Version("2.1")
"""The first release of torch whose foreach Adam makes no second copy (its pull request 104898)."""

MOMENTS: Final[dict[OptimizerName, int]] = {
    "adamw": 2,
    "adamw_8bit": 2,
    "paged_adamw_8bit": 2,
    "paged_adamw_32bit": 2,
    "adamw_bf16": 3,
    "lion": 1,
    "lion_8bit": 1,
    "paged_lion_8bit": 1,
    "paged_lion_32bit": 1,
    "sgd": 0,
    "lomo": 0,
}
"""Tensors of the parameter's shape that each optimizer keeps. Adam (arXiv 1412.6980) two, Lion
(arXiv 2302.06675) one, torch's SGD without momentum none; AdamWBF16 (arogozhnikov/adamw_bfloat16,
as SimpleTuner ships it) a third for what rounding to bf16 lost. Adafactor and AdaLOMO keep sums of
rows and columns instead (lomo-optim 0.1.1 `adalomo.py`: `exp_avg_sq_row`, `exp_avg_sq_col`)."""

_EIGHT_BIT: Final = 1 + 4 / 256
"""Bytes an element of an 8-bit moment: one, and an fp32 scale for each block of 256 (bitsandbytes
0.44, `optim/optimizer.py`; before that the block was 2048)."""


def moment_bytes(
    optimizer: Optimizer, states: States, counts: Counts, *, flat: bool = False
) -> float:
    """Bytes of the optimizer's moments over all trained elements.

    `flat`: whether the engine gives the optimizer one flat tensor instead of the model's own, as
    ZeRO does; then bitsandbytes finds neither small tensors nor embeddings to keep in fp32, and
    Adafactor no rows and columns to sum over.
    Of a paged optimizer's, `paged_bytes` are in managed memory.
    """
    if optimizer.name in FACTORED:
        return 4 * (counts.trainable if flat else counts.factored)
    moments = MOMENTS[optimizer.name]
    if states.optimizer == "int8":
        wide = 0 if flat else min(counts.small + counts.tables, counts.trainable)
        return moments * (_EIGHT_BIT * (counts.trainable - wide) + 4 * wide)
    return moments * BYTES[states.optimizer] * counts.trainable


FACTORED: Final = ("adafactor", "adalomo")
"""Optimizers that keep sums of rows and columns, in fp32."""


def is_paged(optimizer: Optimizer) -> bool:
    """Whether moments are in managed memory."""
    return optimizer.name.startswith("paged_")


def paged_bytes(
    optimizer: Optimizer, states: States, sizes: Iterable[int], tables: int, *, flat: bool = False
) -> float:
    """Bytes of the moments that are in CUDA's managed memory.

    Those of tensors of 100,000 elements and more (bitsandbytes 0.50.2 `optim/optimizer.py`,
    `get_state_buffer`; an 8-bit moment's scales are not). The driver moves them to the host when
    the device runs short and back when they are touched, and torch's allocator never sees them
    (QLoRA, arXiv 2305.14314, section 3, "Paged Optimizers"). `sizes`: elements of each trained
    tensor; `tables`: of embedding tables, which 8-bit moments leave in fp32; `flat`: as of
    `moment_bytes`.
    """
    large = float(sum(size for size in sizes if size >= _PAGED_FROM))
    moments = MOMENTS[optimizer.name]
    if states.optimizer != "int8":
        return moments * BYTES[states.optimizer] * large
    wide = 0 if flat else min(tables, large)
    return moments * (large - wide + 4 * wide)


def in_backward_bytes(optimizer: Optimizer, states: States, elements: int) -> float:
    """Bytes that LOMO allocates while it steps a tensor, its gradient among them.

    The gradient and the weight in fp32; AdaLOMO besides its square and what is made of that, three
    tensors at most at once (lomo-optim 0.1.1 `fuse_update`). A tensor in fp32 is no copy.
    """
    if optimizer.name == "adalomo":
        return 3 * MASTER_BYTES * elements
    return (1 if states.trainable == "fp32" else 2) * MASTER_BYTES * elements


_PAGED_FROM: Final = 100_000
"""Elements: "> 1 MB", as bitsandbytes has it."""


def step_bytes(
    optimizer: Optimizer,
    states: States,
    stepped: float,
    largest: int,
    torch: Version | None = None,
) -> float:
    """Bytes that the optimizer allocates while it steps over `stepped` elements.

    torch's foreach kernels hold one more copy of what they step (traced with torch 2.13,
    `torch/optim/adam.py`, `_multi_tensor_adam`: the denominators); the loop holds two of one tensor
    (`_single_tensor_adam`: a root and its quotient), the largest or, of ZeRO's flat parts, all that
    is stepped; fused and bitsandbytes kernels hold none. transformers' Adafactor takes each
    gradient and parameter in fp32, copies of what is not, and holds two tensors of its update at
    once (5.23 `optimization.py`, `Adafactor.step`). The optimizers' tests measure all of them.
    """
    size = MASTER_BYTES if states.master_weights else BYTES[states.trainable]
    if optimizer.name == "adafactor":
        tensors = 2 if size == MASTER_BYTES else 4
        return tensors * MASTER_BYTES * (largest or stepped)
    if optimizer.name in STEPS_IN_BACKWARD:
        return in_backward_bytes(optimizer, states, largest)
    if optimizer.name == "sgd":
        return 0
    if optimizer.kernel == "foreach":
        return size * stepped * (2 if (torch or _ADDS_IN_PLACE) < _ADDS_IN_PLACE else 1)
    return 2 * size * (largest or stepped) if optimizer.kernel == "loop" else 0
