"""The UNet: residual blocks and transformers at several resolutions, in bytes per sample.

Traced with diffusers 0.42: SDXL at 1024 x 1024 and Stable Diffusion 1.5 at 512 x 512, trained in
full and with LoRA, with and without checkpointing (`tests/analyses/memory/test_diffusion.py`).
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from msgspec import Struct

from tunec.compiler.analyses.memory.activations import Activations
from tunec.compiler.analyses.memory.arithmetic import Arithmetic
from tunec.compiler.analyses.memory.lora import adapters_saved
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.models.architecture import Module, UnetLevel

_FP32: Final = 4
_HALF: Final = 2
_INTO: Final = ".proj_in"


class Level(Struct, frozen=True):
    """One resolution, with its position among the others."""

    level: UnetLevel
    positions: int
    """Elements of one channel."""
    blocks: int
    """Residual blocks that a gradient passes."""
    inputs: int
    """Channels that those blocks read, together."""
    inputs_up: int
    """Of these, the channels that the blocks of the up path read."""
    first: int
    """Channels that the first block of the up path reads."""
    last: int
    """Channels that the last block of the up path reads."""
    waiting: int
    """Of the channels that the up path reads, those whose gradient waits for the down path."""
    sampled: int
    """Elements that the convolutions read which change the resolution."""
    sampled_up: int
    """Of these, those that the up path reads on its way to this level."""
    begins: bool
    """Whether the first adapter is in its first transformer, before which nothing is kept."""

    @property
    def down(self) -> int:
        """Residual blocks of the down path."""
        return (self.level.resnets - 1) // 2

    @property
    def layers(self) -> int:
        """Transformer layers."""
        return self.level.transformers * self.level.depth


def levels(workload: Workload, *, trained: bool = True) -> tuple[Level, ...]:
    """Every resolution of the model for one sample.

    With adapters alone, no gradient passes the blocks of the down path before the first adapter: in
    a transformer, or on what a residual block reads of the time.
    """
    model, data = workload.architecture, workload.data
    width, height = (side // model.latent_scale for side in (data.image_width, data.image_height))
    timed = {module.shape[0] for module in workload.adapted if _is_of_time(module)}
    adapted = (i for i, e in enumerate(model.unet) if e.transformers or e.channels in timed)
    first = 0 if trained else next(adapted, 0)
    begins = None if trained or model.unet[first].channels in timed else first
    positions = [(width // each.scale) * (height // each.scale) for each in model.unet]
    return tuple(
        Level(
            level,
            positions[index],
            *_blocks(model.unet, index, goes_down=index >= first, begins=index == begins),
            _waiting(model.unet, index, -1 if trained else first),
            *_sampled(model.unet, positions, index, goes_down=index >= first),
            index == begins,
        )
        for index, level in enumerate(model.unet)
    )


def _is_of_time(module: Module) -> bool:
    """Whether a module of a residual block reads the time, one row for each sample."""
    return module.path.endswith(".time_emb_proj")


def _waiting(every: tuple[UnetLevel, ...], index: int, first: int) -> int:
    """Channels of the gradients that the up path of a level leaves for the down path.

    The gradient of what a block of the up path reads, of the level below and from beside together,
    is one tensor, which waits whole if the level from `first` on gets it (-1: the input as well).
    The last block reads what the level above, or the first convolution, gave to this one.
    """
    _, up, _, last = _blocks(every, index, goes_down=True)[1:]
    return (up - last) * (index >= first) + last * (index - 1 >= first)


def _sampled(
    every: tuple[UnetLevel, ...], positions: Sequence[int], index: int, *, goes_down: bool
) -> tuple[int, int]:
    """Elements that the convolutions to and from the level below read, down and up, and up alone.

    One on the way up reads the level below at this level's resolution (diffusers 0.42
    `models/upsampling.py`, `Upsample2D`); autograd keeps what a convolution reads.
    """
    if index == len(every) - 1:
        return 0, 0
    up = positions[index] * every[index + 1].channels
    return up + positions[index] * every[index].channels * goes_down, up


def _blocks(
    every: tuple[UnetLevel, ...], index: int, *, goes_down: bool, begins: bool = False
) -> tuple[int, int, int, int, int]:
    """How many residual blocks a level has, and the channels that they read together.

    Then what those read that go up, and the first and the last of them.

    n blocks go down and n + 1 up (2n + 1 in all, and two in the middle of the last level). The
    first down reads the level above, the others this one; each up reads this level's width from
    beside, the first together with the level below, the last with the level above beside it.
    `begins`: no gradient passes the first block down.
    """
    level, middle = every[index], 2 * (index == len(every) - 1)
    above = every[max(index - 1, 0)].channels
    below = every[min(index + 1, len(every) - 1)].channels
    down = (level.resnets - 1 - middle) // 2
    going_up = (below + above) + (2 * down + middle) * level.channels
    ends = going_up, level.channels + below, level.channels + above
    if not goes_down:
        return down + 1 + middle, going_up, *ends
    going_down = above * (not begins) + (down - 1) * level.channels
    return level.resnets - begins, going_up + going_down, *ends


def unet_activations(workload: Workload, widths: Arithmetic, *, checkpointed: bool) -> Activations:
    """Activations of the UNet; the level with most working memory is its last and first layer."""
    every = levels(workload, trained=widths.trained)
    convolved, between = is_convolved(workload), between_layers(workload, widths)
    rest = sum(e.positions * transformer_ends(e, widths, convolved=convolved) for e in every)
    rest += sum(widths.compute * each.sampled for each in every) + _adapters(
        workload, every, widths, _is_end
    )
    if checkpointed:
        inputs = sum(e.positions * inputs_saved(e, between) for e in every)
        middle = every[-1].positions * middle_saved(every[-1], widths, between)
        kept = {"denoiser layer inputs": rest + inputs + middle}
    else:
        whole = sum(
            e.positions * (resnets_saved(e, widths) + e.layers * layer_saved(e.level, widths))
            for e in every
        )
        adapters = _adapters(workload, every, widths, lambda module: not _is_end(module))
        kept = {"denoiser activations": rest + whole + adapters}
    works = [_working(workload, e, every, widths, checkpointed=checkpointed) for e in every]
    way = between if checkpointed else None
    freed = accumulate((_going_up(e, widths, way) for e in every), initial=0.0)
    last = max(work - done for work, done in zip(works, freed, strict=False))
    largest = max(works)
    top, first = _first(every, works, widths, way)
    return Activations(
        kept={name: float(size) for name, size in kept.items()},
        last_layer={"denoiser recomputed block": last},
        first_layer={"denoiser first level": top, "denoiser recomputed block": first},
        one_layer={"denoiser recomputed block": largest},
        forward={"denoiser forward pass": largest},
    )


def _adapters(
    workload: Workload,
    every: tuple[Level, ...],
    widths: Arithmetic,
    among: Callable[[Module], bool],
) -> float:
    """Bytes that some adapters keep; the two ends of a transformer read two tensors."""
    found = [module for module in workload.adapted if among(module)]
    apart = [
        [m for m in found if m.path.endswith(_INTO)],
        [m for m in found if not m.path.endswith(_INTO)],
    ]
    return sum(
        adapters_saved(workload, each, widths, lambda m: module_positions(m, every))
        for each in apart
    )


def _is_end(module: Module) -> bool:
    """Whether a module projects what a transformer reads or gives, outside of its layers."""
    return module.path.endswith((_INTO, ".proj_out"))


def _first(
    every: tuple[Level, ...], works: Sequence[float], widths: Arithmetic, between: int | None
) -> tuple[float, float]:
    """Kept and working bytes when nearly all gradients of weights exist.

    A first level without transformers (SDXL) has few weights, and so has the down path of the level
    below: its transformers are differentiated while the tensors of the first level are still kept.
    """
    if not widths.trained:
        return 0.0, max(works)
    kept = [each.positions * _going_down(each, widths, between) for each in every[:2]]
    if every[0].layers or kept[1] + works[1] < max(works):
        return kept[0], max(works)
    return sum(kept), works[1]


def resnets_saved(at: Level, widths: Arithmetic) -> float:
    """Bytes per position that residual blocks keep.

    The input of each norm, of each SiLU and of each convolution, twice: autograd keeps a
    convolution's input whether or not its weight is trained (traced). Autocast gives a norm's
    result in fp32, which SiLU reads, and the norm reads a cast: blocks of the up path, which change
    the number of channels, keep their input for the convolution that goes around them as well.
    """
    around = widths.compute * widths.autocast * at.inputs_up
    return resnet_saved(widths) * (at.inputs + at.blocks * at.level.channels) + around


def resnet_saved(widths: Arithmetic) -> int:
    """Bytes of one channel that a residual block keeps around a convolution."""
    norms = _FP32 if widths.autocast else widths.stream
    return 2 * norms + widths.compute


def transformer_ends(at: Level, widths: Arithmetic, *, convolved: bool) -> float:
    """Bytes per position that transformers keep around their layers: norm and projections.

    A projection that is a convolution (Stable Diffusion 1.5) keeps its input, trained or not.
    """
    read = widths.compute * (widths.trained or convolved)
    norm = _FP32 if widths.autocast else widths.stream
    ends = at.level.transformers * (norm + 2 * read) - at.begins * (norm + read)
    return ends * at.level.channels


def layer_saved(level: UnetLevel, widths: Arithmetic) -> float:
    """Bytes per position that one transformer layer keeps, without adapters.

    With c for the channels and f for the inner width of GEGLU: 24c + 8f trained, 18c + 6f if only
    gradients pass (three norms; self and cross attention, whose keys and values come from the text;
    the gate's two halves, its activation and the product).
    """
    norm = _FP32 if widths.autocast else widths.stream
    attention = 6 * widths.compute * level.channels + 2 * _FP32 * level.heads
    read = 3 * widths.compute * level.channels if widths.trained else 0
    feed_forward = widths.answer * level.ffn * (4 if widths.trained else 3)
    return 3 * norm * level.channels + attention + read + feed_forward


def inputs_saved(at: Level, between: int) -> float:
    """Bytes per position that checkpointing keeps: every block's and every layer's input."""
    blocks = between if at.layers else _HALF
    return blocks * at.inputs + between * at.layers * at.level.channels


def middle_saved(at: Level, widths: Arithmetic, between: int) -> float:
    """Bytes per position that the first residual block in the middle keeps besides its input.

    It is never recomputed (diffusers 0.42 `models/unets/unet_2d_blocks.py`,
    `UNetMidBlock2DCrossAttn.forward`).
    """
    whole = 2 * resnet_saved(widths) - (between if at.layers else _HALF)
    return whole * at.level.channels


def between_layers(workload: Workload, widths: Arithmetic) -> int:
    """Bytes per element of what passes from a transformer to the next block, if recomputed.

    Around packed layers it is what their products answer, unless the last is a convolution.
    """
    return _HALF if is_convolved(workload) else widths.answer


def is_convolved(workload: Workload) -> bool:
    """Whether transformers are projected by convolutions (Stable Diffusion 1.5)."""
    return any(
        module.kind == "conv" and module.path.endswith("proj_in")
        for module in workload.architecture.modules
    )


def _working(
    workload: Workload,
    at: Level,
    every: tuple[Level, ...],
    widths: Arithmetic,
    *,
    checkpointed: bool,
) -> float:
    """Bytes to differentiate the block of a level that needs most."""
    layer = at.positions * layer_working(at.level, widths, checkpointed)
    if checkpointed and at.layers:
        inside = (m for m in workload.adapted if not _is_end(m) and not _is_of_time(m))
        here = [m for m in inside if at.level.channels in (m.shape[0], m.shape[1])]
        kept = adapters_saved(workload, here, widths, lambda m: module_positions(m, every))
        layer += kept / at.layers
    return max(at.positions * resnet_working(at, widths), layer)


def _going_up(at: Level, widths: Arithmetic, between: int | None) -> float:
    """Bytes that the up path keeps of a level, which are freed when the level below is reached.

    Less the gradients that wait for the down path. `between`: bytes per element of a recomputed
    layer's input; None: no layer is recomputed.
    """
    sampled = widths.compute * at.sampled_up
    blocks = widths.stream if between is None else between if at.layers else _HALF
    waiting = blocks * at.waiting
    if between is not None:
        layers = at.layers * (at.down + 1) / (2 * at.down + 1)
        own = blocks * at.inputs_up + between * layers * at.level.channels
        return sampled + at.positions * (own - waiting)
    whole = resnets_saved(at, widths) + at.layers * layer_saved(at.level, widths)
    return sampled + at.positions * (whole * (at.down + 1) / at.blocks - waiting)


def _going_down(at: Level, widths: Arithmetic, between: int | None) -> float:
    """Bytes per position that the down path keeps of a level, which is differentiated last."""
    whole = resnets_saved(at, widths) + at.layers * layer_saved(at.level, widths)
    down = (at.level.resnets - 1) // 2
    return (whole if between is None else inputs_saved(at, between)) * down / at.level.resnets


def resnet_working(at: Level, widths: Arithmetic) -> float:
    """Bytes a position of a residual block, recomputed and differentiated.

    Traced: eight tensors where it is trained; where only gradients pass, three of the input's width
    and five of the output's, in the last block, before which all else is there. Autocast's norms
    read and give fp32, as their gradients and SiLU's are: most is there at the first norm of the
    widest block, the first on the way up, when the inputs of those above are gone, or at the second
    norm of the last.
    """
    if widths.trained:
        return 2 * 8 * (at.inputs / at.blocks + at.level.channels)
    if widths.autocast:
        first = (4 * _FP32 + widths.compute) * at.first - 2 * (at.inputs_up - at.first)
        last = (2 * _FP32 + widths.compute) * at.last
        return max(first, last + (4 * _FP32 + 2 * widths.compute) * at.level.channels)
    return 2 * (3 * at.last + 5 * at.level.channels)


def layer_working(level: UnetLevel, widths: Arithmetic, checkpointed: bool) -> float:
    """Bytes per position of one transformer layer, recomputed and differentiated.

    Packed weights answer in fp32 under autocast: the gradients of the layer's result and of what
    the transformer gives, which its input gets as well, are there as long.
    """
    passed = (widths.answer + widths.compute) * level.channels
    gradients = widths.answer * 3 * level.ffn + passed * (widths.answer > widths.compute)
    return gradients + (layer_saved(level, widths) if checkpointed else 0)


def module_positions(module: Module, every: tuple[Level, ...]) -> int:
    """Elements of one channel that a module works on: those of its level, or the text's tokens.

    Keys and values of cross attention read the text; all other modules are identified by their
    width.
    """
    if _is_of_time(module):
        return 1
    positions = {each.level.channels: each.positions for each in reversed(every)}
    texts = {each.level.cross_attention for each in every} - {0}
    if module.kind == "linear" and module.shape[1] in texts and module.shape[1] not in positions:
        return max(each.level.text_tokens for each in every)
    return positions.get(module.shape[0], positions.get(module.shape[1], 0))
