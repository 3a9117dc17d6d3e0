"""The number of elements of each kind in a workload, which no layout changes."""

from collections.abc import Iterable
from functools import cached_property
from itertools import takewhile
from math import prod
from typing import Final

from tunec.compiler.analyses.memory.modules import (
    adapter_elements,
    adapter_shapes,
    experts_apart,
    flavour,
    is_after_attention,
    is_in_encoder,
    is_stack,
    quantizes,
    tower_of,
    wants_gradient,
)
from tunec.compiler.analyses.memory.workload import Workload
from tunec.schemas.caches import cached
from tunec.schemas.models.architecture import Architecture, Module, Part

_SMALL_TENSOR: Final = 4096
"""bitsandbytes `optim/optimizer.py`, `min_8bit_size`: states of smaller tensors are in fp32."""


class Counts:
    """Element counts of a workload over the whole model, each computed when it is first read.

    `share`: bytes of an element trained beside adapters, relative to one of the adapters' dtype.
    """

    def __init__(self, workload: Workload, share: float = 1.0) -> None:
        self._workload, self._share = workload, share
        self._model = workload.architecture

    @cached_property
    def base(self) -> int:
        """Elements of the model itself, without adapters."""
        return self._model.parameters

    @cached_property
    def _stored(self) -> tuple[tuple[Module, ...], tuple[Module, ...]]:
        """Modules that are not trained, as they were loaded: the quantized ones, and the others.

        PEFT keeps the original of a module in `modules_to_save` beside the trained copy (peft
        `utils/other.py`, `ModulesToSaveWrapper`).
        """
        workload, lora = self._workload, self._workload.adapter.kind == "lora"
        trained = frozenset(module.path for module in (*workload.trained, *workload.idle))
        kept = tuple(m for m in self._model.modules if lora or m.path not in trained)
        if workload.quantization.format == "none":
            return (), kept
        packed = tuple(module for module in kept if quantizes(workload, module))
        return packed, tuple(module for module in kept if not quantizes(workload, module))

    @cached_property
    def frozen(self) -> int:
        """Elements that are neither trained nor quantized, including biases of quantized layers."""
        packed, plain = self._stored
        return _elements(plain) + sum(module.bias * module.copies for module in packed)

    @cached_property
    def quantized(self) -> int:
        """Elements of quantized weights."""
        return sum(prod(module.shape) * module.copies for module in self._stored[0])

    @cached_property
    def quantized_rows(self) -> int:
        """Output rows of quantized layers."""
        return sum(prod(m.shape) * m.copies // m.shape[-1] for m in self._stored[0])

    @cached_property
    def expanded(self) -> int:
        """Elements of the largest quantized weight, which a product dequantizes."""
        return max((prod(module.shape[-2:]) for module in self._stored[0]), default=0)

    def _beside(self, modules: Iterable[Module], more: int = 0) -> int:
        """Elements of modules that are trained in full, and `more`, converted by the share."""
        size = _elements(modules) + more
        return size if self._share == 1.0 else round(self._share * size)

    @cached_property
    def trained(self) -> int:
        """Elements of modules trained in full, and of biases that are trained beside adapters."""
        return self._beside(self._workload.trained, _adapter_biases(self._workload))

    @cached_property
    def adapters(self) -> int:
        """Elements of adapters."""
        return sum(adapter_elements(self._workload, module) for module in self._workload.adapted)

    @cached_property
    def trainable(self) -> int:
        """Elements of all parameters that have a gradient."""
        return self.trained + self.adapters

    @cached_property
    def _stepped(self) -> frozenset[Module]:
        return frozenset((*self._workload.trained, *self._workload.adapted))

    @cached_property
    def idle(self) -> int:
        """Elements that are stepped although no gradient reaches them, of modules and adapters."""
        workload, stepped = self._workload, self._stepped
        full = _elements(module for module in workload.idle if module in stepped)
        adapted = (module for module in workload.idle_adapted if module in stepped)
        return full + sum(adapter_elements(workload, module) for module in adapted)

    @cached_property
    def resting(self) -> int:
        """Elements of modules to be trained in full without a gradient or optimizer state."""
        return self._beside(m for m in self._workload.idle if m not in self._stepped)

    @cached_property
    def resting_adapters(self) -> int:
        """Elements of adapters that have neither a gradient nor optimizer state."""
        resting = (m for m in self._workload.idle_adapted if m not in self._stepped)
        return sum(adapter_elements(self._workload, module) for module in resting)

    @cached_property
    def unvisited(self) -> int:
        """Elements of a vision tower and its projector if samples have no pictures; else 0."""
        pictured = self._workload.data.vision_tokens
        return 0 if pictured else _elements(tower_of(self._model.modules))

    @cached_property
    def components(self) -> int:
        """Elements of the models that encode the data."""
        return sum(component.parameters for component in self._workload.components)

    @cached_property
    def largest(self) -> int:
        """Elements of the largest trained parameter."""
        return max(map(prod, _trained_shapes(self._workload)), default=0)

    @cached_property
    def largest_parameter(self) -> int:
        """Elements of the largest parameter, trained or not."""
        return max((prod(module.shape) for module in self._model.modules), default=0)

    @cached_property
    def largest_module(self) -> int:
        """In the largest module, of its own: one holds both stacks of experts."""
        stacks: dict[str, int] = {}
        if not experts_apart(self._workload):
            for module in filter(is_stack, self._model.modules):
                owner = module.path.rpartition(".")[0]
                stacks[owner] = stacks.get(owner, 0) + prod(module.shape)
        return max(self.largest_parameter, *stacks.values(), 0)

    @cached_property
    def inner(self) -> int:
        """Elements of the largest trained parameter inside the layers."""
        return max(map(prod, _trained_shapes(self._workload, inside=True)), default=0)

    @cached_property
    def small(self) -> int:
        """Elements of trained tensors with fewer than 4096 elements each."""
        return sum(size for size in _sizes(self._workload) if size < _SMALL_TENSOR)

    @cached_property
    def tables(self) -> int:
        """Elements of trained embedding tables; transformers keeps their 8-bit states in fp32."""
        return _elements(tables_of(self._workload))

    @cached_property
    def factored(self) -> int:
        """Rows and columns of all trained matrices together, and elements of trained vectors.

        Adafactor's second moments have this many elements (arXiv 1804.04235, section 3).
        """
        workload = self._workload
        full = sum((_row_column(m.shape) + m.bias) * m.copies for m in workload.trained)
        shapes = ((m, adapter_shapes(workload, m)) for m in workload.adapted)
        return full + sum(sum(map(_row_column, each)) * m.copies for m, each in shapes)

    def _at(self, path: str | None) -> tuple[Module, ...]:
        return tuple(module for module in self._workload.trained if module.path == path)

    @cached_property
    def embedding(self) -> int:
        """Elements of the token embedding if it is trained; otherwise 0."""
        return self._beside(self._at(self._model.embedding))

    @cached_property
    def head(self) -> int:
        """Elements of the output projection if it is trained and not the embedding; else 0."""
        return self._beside(self._at(self._model.head))

    @cached_property
    def encoder(self) -> int:
        """Trained elements of the encoder before a decoder."""
        return self._beside(m for m in self._workload.trained if is_in_encoder(m))

    @cached_property
    def vision(self) -> int:
        """Trained elements of the vision tower, if samples reach it; otherwise 0."""
        if self._workload.idle:
            return 0
        return self._beside(m for m in self._workload.trained if m.part == "vision")

    @cached_property
    def tied(self) -> bool:
        """Whether one trained weight is both embedding and output projection."""
        full = self._model.tied and self._workload.adapter.kind != "lora"
        return full and self.embedding > 0

    @cached_property
    def late(self) -> int:
        """Trained elements per layer whose gradients come after the feed-forward's, on average.

        They come after the gradients of the experts as well. Layers are those of the text or the
        denoiser.
        """
        return round(self._share * _late(self._workload))

    @cached_property
    def experts(self) -> int:
        """Trained elements of the experts of one layer, on average."""
        found = (module for module in self._workload.trained if _is_expert(module))
        return round(self._share * (_elements(found) // _expert_layers(self._model)))

    @cached_property
    def merges(self) -> bool:
        """Whether adapters are added to the weights of experts in each pass."""
        return any(map(is_stack, self._workload.adapted))

    @cached_property
    def block(self) -> int:
        """Elements of a layer's block of experts, with router and shared experts; 0: none."""
        roots = expert_blocks(self._model)
        inside = (m for m in self._model.modules if roots and m.path.startswith(roots))
        return _elements(inside) // _expert_layers(self._model)

    @cached_property
    def multiplied(self) -> int:
        """Elements of trained weights in products: linear layers, convolutions, a tied head."""
        trained = _elements(module for module in self._workload.trained if _multiplies(module))
        return trained + self.output * self.tied

    @cached_property
    def multiplied_frozen(self) -> int:
        """Elements of frozen, unquantized weights in products that a gradient passes through."""
        model, plain = self._model, self._stored[1]
        passed = _elements(m for m in plain if _multiplies(m) and wants_gradient(model, m))
        return passed + self.output * (model.tied and not self.tied)

    @cached_property
    def output(self) -> int:
        """Elements of the weight that the output projection multiplies with."""
        model = self._model
        own = next((each for each in model.modules if each.path == model.head), None)
        return model.vocab * model.hidden if own is None else prod(own.shape)

    @cached_property
    def output_frozen(self) -> int:
        """Elements of the output projection's weight if it is frozen; 0 if it is trained."""
        return 0 if self.head or self.tied else self.output

    @cached_property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Each parameter size, with the elements of all parameters of that size, smallest first."""
        sums: dict[int, int] = {}
        for module in self._model.modules:
            for size in (prod(module.shape), module.bias):
                if size:
                    sums[size] = sums.get(size, 0) + size * module.copies
        return tuple(sorted(sums.items()))

    @cached_property
    def adapted_parts(self) -> frozenset[Part]:
        """The parts of the model that have adapters."""
        return frozenset(module.part for module in self._workload.adapted)

    @cached_property
    def trained_parts(self) -> frozenset[Part]:
        """The parts whose layers are trained, not only an embedding or the head."""
        outside = {self._model.head, *self._model.new}
        inside = (m for m in self._workload.trained if _multiplies(m) and m.path not in outside)
        return frozenset(module.part for module in inside)


@cached(256)
def count(workload: Workload, share: float = 1.0) -> Counts:
    """The counts of a workload, cached because every account of the workload reads some of them."""
    return Counts(workload, share)


def _adapter_biases(workload: Workload) -> int:
    """Biases that `bias="all"` or `"lora_only"` trains beside the adapters (peft `LoraConfig`)."""
    which = {"all": workload.architecture.modules, "lora_only": workload.adapted}
    return sum(m.bias * m.copies for m in which.get(workload.adapter.bias, ()))


def _elements(modules: Iterable[Module]) -> int:
    return sum(module.parameters for module in modules)


def _multiplies(module: Module) -> bool:
    return module.kind in ("linear", "conv")


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
        and not _is_expert(module)
        and not (eager and is_after_attention(module))
        and not (module.kind == "linear" and module.shape[1] in inner)
    )
    return _elements(late) // max(sum(stack.layers for stack in stacks), 1) + _ahead(workload)


def _is_expert(module: Module) -> bool:
    """Whether a module belongs to routed experts; a denoiser's are measured with their block."""
    return ".experts" in module.path and module.part != "denoiser"


def _ahead(workload: Workload) -> int:
    """Trained elements in blocks that come before the recomputed blocks (`Stack.is_kept`)."""
    model = workload.architecture
    kinds = zip(model.denoiser.lists if model.denoiser else (), model.stacks, strict=False)
    ahead = tuple(f"{path}." for path, _ in takewhile(lambda each: each[1].is_kept, kinds))
    few = ahead if len(ahead) < len(model.stacks) else ()
    return _elements(module for module in workload.trained if module.path.startswith(few))


def visited_layers(workload: Workload) -> int:
    """The number of layers that samples pass; a tower's layers count only if there are pictures."""
    stacks, pictures = workload.architecture.stacks, workload.data.vision_tokens > 0
    return sum(stack.layers for stack in stacks if pictures or stack.part != "vision")


def main_layers(workload: Workload) -> int:
    """The number of layers of the language model or the denoiser; 1 if no layers repeat."""
    stacks = workload.architecture.stacks
    return max(sum(stack.layers for stack in stacks if stack.part != "vision"), 1)


def _expert_layers(model: Architecture) -> int:
    """The number of layers with experts; 1 if no layer has experts."""
    return max(sum(stack.layers for stack in model.stacks if stack.experts is not None), 1)


def expert_blocks(model: Architecture) -> tuple[str, ...]:
    """Paths of the modules that hold experts, each with its final dot (`mlp.`)."""
    found = {m.path.partition(".experts")[0] + "." for m in model.modules if ".experts" in m.path}
    return tuple(sorted(found))


def _trained_shapes(workload: Workload, *, inside: bool = False) -> list[tuple[int, ...]]:
    shapes = [module.shape for module in workload.trained if not inside or "{}" in module.path]
    for module in workload.adapted:
        shapes += adapter_shapes(workload, module)
    return shapes


def _sizes(workload: Workload) -> Iterable[int]:
    for module in workload.trained:
        yield from [prod(module.shape)] * module.copies
        yield from [module.bias] * module.copies
    for module in workload.adapted:
        yield from [*map(prod, adapter_shapes(workload, module))] * module.copies


def tables_of(workload: Workload) -> tuple[Module, ...]:
    """Trained embedding tables, if transformers builds the optimizer.

    transformers 5.23 `trainer.py`, `create_optimizer`: `register_module_override(module, "weight",
    {"optim_bits": 32})` for each `nn.Embedding`.
    """
    if workload.architecture.kind == "diffusion":
        return ()
    return tuple(module for module in workload.trained if module.kind == "embedding")


def _row_column(shape: tuple[int, ...]) -> int:
    """Sums over the last two axes, kept for every other index, as transformers' Adafactor does."""
    if len(shape) < 2:
        return prod(shape)
    return prod(shape[:-2]) * (shape[-2] + shape[-1])
