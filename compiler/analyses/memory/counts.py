"""How many elements of each kind a workload holds: what no layout changes."""

from collections.abc import Iterable
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple

from packaging.version import Version

from tunec.compiler.analyses.memory.flavours import flavour
from tunec.compiler.analyses.memory.places import (
    is_after_attention,
    tower_of,
    wants_gradient,
)
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.frozen import dataclass
from tunec.schemas.models.architecture import Architecture, Module, Part
from tunec.schemas.terms import QuantFormat

QUANTIZED_PARTS: Final[frozenset[Part]] = frozenset({"text", "denoiser"})
"""Where linear layers are quantised. transformers would also quantise those of a vision tower
(`quantizers/base.py`, `get_keys_to_not_convert` names only the head and tied weights): whoever
writes its config names the tower in `llm_int8_skip_modules`."""

_GATE_UP: Final = ".gate_up_proj"

_ENCODER: Final = ("encoder.", "model.encoder.")

_FUSED_EXPERTS: Final = Version("5.0")
_ONCE_SEPARATE: Final = frozenset(
    {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2", "deepseek_v3"}
)
"""Families whose experts were linear layers of their own, which bitsandbytes quantises, before
transformers 5 made tensors of them, which it leaves (`models/<family>/modeling_<family>.py` in the
wheels 4.40.2, 4.46.3, 4.57.6, 5.0.0 and 5.23.0; DeepSeek's remote code too). Granite's always were
tensors."""

FOUR_BIT: Final[frozenset[QuantFormat]] = frozenset({"nf4", "fp4"})
"""Formats in which bitsandbytes packs two elements into a byte."""

_SMALL_TENSOR: Final = 4096
"""bitsandbytes keeps the states of smaller tensors in fp32 (`optim/optimizer.py`,
`min_8bit_size`)."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Elements; of everything once, whatever the number of devices."""

    base: int
    """The model itself, without adapters."""
    frozen: int
    """Of the model, neither trained nor quantised."""
    quantized: int
    quantized_rows: int
    """Output rows of quantised layers."""
    expanded: int
    """In the largest quantised weight, which a product expands."""
    trained: int
    """In modules trained in full."""
    adapters: int
    idle: int
    """Trained that no gradient comes to, adapters with modules."""
    resting: int
    """In modules to be trained in full that have neither gradient nor state."""
    resting_adapters: int
    unvisited: int
    """In a tower and its projector where samples have no pictures."""
    components: int
    largest: int
    """In the largest trained parameter."""
    inner: int
    """In the largest one inside the layers."""
    small: int
    """In trained tensors of fewer than 4096 elements."""
    tables: int
    """In trained embedding tables, whose 8-bit optimizer states transformers keeps in fp32."""
    factored: int
    """Rows and columns of all trained matrices together, and all elements of trained vectors."""
    embedding: int
    """In the token embedding, where it is trained."""
    head: int
    """In the output projection, where it is trained and not the embedding."""
    encoder: int
    """In the encoder before a decoder, where it is trained."""
    vision: int
    """In the vision tower, where it is trained and samples reach it."""
    tied: bool
    """Whether one trained weight is both embedding and output projection."""
    late: int
    """Trained in one layer of the text or denoiser stacks, on average, whose gradients come after
    those of the feed-forward's last weight and of the experts."""
    experts: int
    """Trained in the experts of one layer, on average."""
    block: int
    """In the block of one layer that holds experts, with router and shared experts; 0: none."""
    multiplied: int
    """In trained weights of products: linear layers, convolutions, a tied head."""
    multiplied_frozen: int
    """In weights of products that are neither trained nor quantised, and that a gradient passes."""
    output: int
    """In the weight that the output projection multiplies with."""
    output_frozen: int
    """In the output projection's weight where it is frozen; 0 where it is trained."""
    sizes: tuple[tuple[int, int], ...]
    """Elements of one parameter and of all parameters of that size, smallest first."""
    adapted_parts: frozenset[Part]
    trained_parts: frozenset[Part]
    """Parts whose layers are trained, not only an embedding or the head."""

    @property
    def trainable(self) -> int:
        """Everything that has a gradient."""
        return self.trained + self.adapters


@lru_cache(maxsize=256)
def count(workload: Workload) -> Counts:
    """Count a workload's elements; remembered, since every account of the workload needs them."""
    model, lora = workload.architecture, workload.adapter.kind == "lora"
    trained = frozenset(module.path for module in (*workload.trained, *workload.idle))
    # PEFT keeps the original of a module in `modules_to_save` beside the trained copy
    # (peft `utils/other.py`, `ModulesToSaveWrapper`).
    kept = [module for module in model.modules if lora or module.path not in trained]
    quantized = [module for module in kept if quantizes(workload, module)]
    plain = [module for module in kept if not quantizes(workload, module)]
    embedding = _elements(m for m in workload.trained if m.path == model.embedding)
    head = _elements(m for m in workload.trained if m.path == model.head)
    tied = model.tied and embedding > 0 and not lora
    biases, output = _adapter_biases(workload), _output(model)
    idle = _idle(workload)
    return Counts(
        base=model.parameters,
        frozen=_elements(plain) + sum(_weightless(module) for module in quantized),
        quantized=sum(_weight(module) for module in quantized),
        quantized_rows=sum(_weight(module) // module.shape[-1] for module in quantized),
        expanded=max((prod(module.shape[-2:]) for module in quantized), default=0),
        trained=_elements(workload.trained) + biases,
        adapters=sum(adapter_elements(workload, module) for module in workload.adapted),
        idle=idle.stepped,
        resting=idle.resting,
        resting_adapters=idle.resting_adapters,
        unvisited=0 if workload.data.vision_tokens else _elements(tower_of(model.modules)),
        components=sum(component.parameters for component in workload.components),
        largest=max(map(prod, _trained_shapes(workload)), default=0),
        inner=max(map(prod, _trained_shapes(workload, inside=True)), default=0),
        small=sum(size for size in _sizes(workload) if size < _SMALL_TENSOR),
        tables=_elements(tables_of(workload)),
        factored=_factored(workload),
        embedding=embedding,
        head=head,
        encoder=_elements(m for m in workload.trained if m.path.startswith(_ENCODER)),
        vision=_elements(m for m in workload.trained if m.part == "vision" and not workload.idle),
        tied=tied,
        late=_late(workload),
        experts=_experts(model, workload.trained),
        block=_block(model),
        multiplied=_elements(m for m in workload.trained if _multiplies(m)) + output * tied,
        multiplied_frozen=_elements(m for m in plain if _multiplies(m) and wants_gradient(model, m))
        + output * (model.tied and not tied),
        output=output,
        output_frozen=0 if head or tied else output,
        sizes=_by_size(model),
        adapted_parts=frozenset(module.part for module in workload.adapted),
        trained_parts=frozenset(m.part for m in workload.trained if _is_inside(model, m)),
    )


def quantizes(workload: Workload, module: Module) -> bool:
    """Whether the module's weight is stored quantised."""
    return (
        workload.quantization.format != "none"
        and (module.kind == "linear" or ("experts." in module.path and experts_apart(workload)))
        and module.part in QUANTIZED_PARTS
        and module.path != workload.architecture.head
    )


def experts_apart(workload: Workload) -> bool:
    """Whether each expert is linear layers of its own, run one expert after the other."""
    version = workload.version("transformers")
    family = workload.architecture.family
    return version is not None and version < _FUSED_EXPERTS and family in _ONCE_SEPARATE


def adapter_elements(workload: Workload, module: Module) -> int:
    """Elements of the adapters on all copies of a module (LoRA, arXiv 2106.09685, section 4.1).

    A has rank x inputs and B outputs x rank elements; a convolution's A takes the kernel. DoRA
    (arXiv 2402.09353) adds one magnitude an output.
    """
    magnitudes = module.shape[0] if workload.adapter.dora else 0
    pair = sum(map(prod, adapter_shapes(module, workload.adapter.rank)))
    return (pair + magnitudes) * module.copies


def adapter_shapes(module: Module, rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The shapes of A and B on one copy of a module.

    Those of experts in one tensor have a rank for each expert, twice where gate and up are one
    (peft 0.21 `tuners/lora/layer.py`, `ParamWrapper`; `utils/transformers_weight_conversion.py`).
    """
    outputs, *rest = module.shape
    if module.kind == "parameter" and len(rest) == 2:
        inner = rank * outputs * (2 if module.path.endswith(_GATE_UP) else 1)
        return (inner, rest[1]), (rest[0], inner)
    return (rank, prod(rest)), (outputs, rank)


def _adapter_biases(workload: Workload) -> int:
    """Biases that `bias="all"` or `"lora_only"` trains beside the adapters (peft `LoraConfig`)."""
    which = {"all": workload.architecture.modules, "lora_only": workload.adapted}
    return sum(m.bias * m.copies for m in which.get(workload.adapter.bias, ()))


def _output(model: Architecture) -> int:
    """Elements of the weight that the output projection multiplies with."""
    own = next((each for each in model.modules if each.path == model.head), None)
    return model.vocab * model.hidden if own is None else prod(own.shape)


def _elements(modules: Iterable[Module]) -> int:
    return sum(module.parameters for module in modules)


def _weight(module: Module) -> int:
    return prod(module.shape) * module.copies


def _weightless(module: Module) -> int:
    return module.bias * module.copies


def _multiplies(module: Module) -> bool:
    return module.kind in ("linear", "conv")


def _is_inside(model: Architecture, module: Module) -> bool:
    """Whether a module is one of those that the layers of its part consist of."""
    return module.kind in ("linear", "conv") and module.path != model.head


def _late(workload: Workload) -> int:
    """A UNet's first level is differentiated last, and holds the least of its elements.

    Attention that is always eager takes most at the scores of many tokens, when all that comes
    behind it is differentiated: three fp32 tensors of them are more than an inner element keeps.
    """
    model, trained = workload.architecture, workload.trained
    if model.unet:
        return _elements(m for m in trained if m.path == "conv_in")
    eager = flavour(model.family, "text").eager
    stacks = [stack for stack in model.stacks if stack.part in ("text", "denoiser")]
    inner = {stack.ffn for stack in stacks}
    keys = workload.data.sequence + workload.data.image_tokens
    eager = eager and all(2 * stack.heads * keys > 3 * stack.ffn for stack in stacks)
    late = (
        module
        for module in trained
        if "{}" in module.path
        and module.part in ("text", "denoiser")
        and ".experts" not in module.path
        and not (eager and is_after_attention(module))
        and not (module.kind == "linear" and module.shape[1] in inner)
    )
    return _elements(late) // max(sum(stack.layers for stack in stacks), 1)


class _Idle(NamedTuple):
    """Elements that want a gradient and get none."""

    stepped: int
    resting: int
    resting_adapters: int


def _idle(workload: Workload) -> _Idle:
    if not workload.idle and not workload.idle_adapted:
        return _Idle(0, 0, 0)
    stepped = {id(module) for module in (*workload.trained, *workload.adapted)}
    full = [(each, each.parameters) for each in workload.idle]
    lora = [(each, adapter_elements(workload, each)) for each in workload.idle_adapted]
    return _Idle(
        sum(size for each, size in (*full, *lora) if id(each) in stepped),
        sum(size for each, size in full if id(each) not in stepped),
        sum(size for each, size in lora if id(each) not in stepped),
    )


def visited_layers(workload: Workload) -> int:
    """Layers that samples pass: those of a tower only where there are pictures."""
    stacks, pictures = workload.architecture.stacks, workload.data.vision_tokens > 0
    return sum(stack.layers for stack in stacks if pictures or stack.part != "vision")


def main_layers(workload: Workload) -> int:
    """Layers of the language model or the denoiser; 1 where none repeat."""
    stacks = workload.architecture.stacks
    return max(sum(stack.layers for stack in stacks if stack.part != "vision"), 1)


def _experts(model: Architecture, trained: Iterable[Module]) -> int:
    layers = sum(stack.layers for stack in model.stacks if stack.experts is not None)
    return _elements(m for m in trained if ".experts" in m.path) // max(layers, 1)


def expert_blocks(model: Architecture) -> tuple[str, ...]:
    """Paths, each with its last dot, of what holds the experts (`mlp`, `block_sparse_moe`)."""
    found = {m.path.partition(".experts")[0] + "." for m in model.modules if ".experts" in m.path}
    return tuple(sorted(found))


def _block(model: Architecture) -> int:
    """The experts' siblings lie under one module with them."""
    roots = expert_blocks(model)
    if not roots:
        return 0
    inside = _elements(m for m in model.modules if m.path.startswith(roots))
    layers = sum(stack.layers for stack in model.stacks if stack.experts is not None)
    return inside // max(layers, 1)


def _trained_shapes(workload: Workload, *, inside: bool = False) -> list[tuple[int, ...]]:
    rank = workload.adapter.rank
    shapes = [module.shape for module in workload.trained if not inside or "{}" in module.path]
    for module in workload.adapted:
        shapes += adapter_shapes(module, rank)
    return shapes


def _sizes(workload: Workload) -> Iterable[int]:
    for module in workload.trained:
        yield from [prod(module.shape)] * module.copies
        yield from [module.bias] * module.copies
    for module in workload.adapted:
        yield from [*map(prod, adapter_shapes(module, workload.adapter.rank))] * module.copies


def tables_of(workload: Workload) -> tuple[Module, ...]:
    """Trained embedding tables where transformers builds the optimizer.

    transformers 5.23 `trainer.py`, `create_optimizer`: `register_module_override(module, "weight",
    {"optim_bits": 32})` for each `nn.Embedding`.
    """
    if workload.architecture.kind == "diffusion":
        return ()
    return tuple(module for module in workload.trained if module.kind == "embedding")


def _factored(workload: Workload) -> int:
    """Elements of Adafactor's second moments (arXiv 1804.04235, section 3)."""
    rank = workload.adapter.rank
    full = sum((_row_column(m.shape) + m.bias) * m.copies for m in workload.trained)
    lora = sum(sum(map(_row_column, adapter_shapes(m, rank))) * m.copies for m in workload.adapted)
    return full + lora


def _row_column(shape: tuple[int, ...]) -> int:
    """Sums over the last two axes, kept for every other index, as transformers' Adafactor does."""
    if len(shape) < 2:
        return prod(shape)
    return prod(shape[:-2]) * (shape[-2] + shape[-1])


def _by_size(model: Architecture) -> tuple[tuple[int, int], ...]:
    sums: dict[int, int] = {}
    for module in model.modules:
        for size in (prod(module.shape), module.bias):
            if size:
                sums[size] = sums.get(size, 0) + size * module.copies
    return tuple(sorted(sums.items()))
