"""The lists of layers of a model's text: a single one, or those of an encoder and its decoder."""

from collections.abc import Iterator, Sequence
from inspect import signature
from typing import Any, Final

import torch
from msgspec import Struct

from tunec.compiler.tracing.live.derivation.layers import Layers, keep_layers, layers_of, stack_of
from tunec.compiler.tracing.live.sources import FEATURES, source_of
from tunec.compiler.tracing.subject import Untraceable
from tunec.schemas.frozen import replace
from tunec.schemas.models.architecture import Stack

_TOKENS: Final = "input_ids"


class Half(Struct, frozen=True):
    """One list of layers, and the config that describes it."""

    config: Any
    layers: Layers
    first: int = 0
    """The index of its first layer, counted after those of the half before it."""
    reads: int = 0
    """Width of the states that its layers attend to besides their own tokens; 0: none."""
    positions: int = 0
    """Positions of each sample if its input is not text; 0: the tokens of the text."""

    def stacks(self, model: torch.nn.Module) -> Iterator[Stack]:
        """The facts of each of its kinds of layers."""
        for kind in self.layers.kinds:
            found = stack_of(model, self.config, self.layers, kind)
            yield replace(found, cross_attention=self.reads, positions=self.positions)

    def keep(self, model: torch.nn.Module) -> None:
        """Keep only the first two layers of each kind and the last layer in the model.

        The first layer of a model and the last one meet the operations around the layers.
        """
        kinds = self.layers.kinds
        kept = frozenset(at for kind in kinds for at in kind[:2])
        keep_layers(model, self.layers, kept | {max(kind[-1] for kind in kinds)})

    def places(self) -> list[int]:
        """The index of the measured layer of each kind, counted over all halves."""
        return [self.first + kind[min(1, len(kind) - 1)] for kind in self.layers.kinds]


def halves_of(model: Any) -> tuple[Half, ...]:
    """The halves of a model in the order in which they run.

    Raises Untraceable if an encoder reads neither tokens nor sounds of one length: a card counts a
    single length, which texts on both sides have.
    """
    if not model.config.is_encoder_decoder:
        config = model.config.get_text_config()
        return (Half(config, layers_of(model, config)),)
    encoder, decoder = model.get_encoder(), model.get_decoder()
    read = _reads(encoder)
    if encoder is model or read not in (_TOKENS, FEATURES) or _reads(model) != read:
        raise Untraceable("its encoder reads no tokens, and a card counts one length alone")
    positions = source_of(model).positions if read == FEATURES else 0
    own = configs_of(model)
    configs = _config_of(own[0], encoder=True), _config_of(own[1], decoder=True)
    paths = _paths(model, (encoder, decoder))
    before, after = (
        layers_of(model, config, within=path) for config, path in zip(configs, paths, strict=True)
    )
    return (
        Half(configs[0], before, positions=positions),
        Half(configs[1], after, before.count, configs[0].hidden_size),
    )


def _config_of(own: Any, **half: bool) -> Any:
    """The text config of a half; if both halves share one config, the half's part of it."""
    text = own.get_text_config()
    return own.get_text_config(**half) if text is own else text


def configs_of(model: Any) -> list[Any]:
    """The configs that the layers of each half read while they run."""
    if not model.config.is_encoder_decoder:
        return [model.config.get_text_config()]
    # FSMT's halves have none of their own
    return [
        getattr(each, "config", model.config) for each in (model.get_encoder(), model.get_decoder())
    ]


def _reads(module: torch.nn.Module) -> str:
    """The name of the first argument of a model's forward pass."""
    return next(iter(signature(module.forward).parameters))


def _paths(model: torch.nn.Module, wanted: Sequence[torch.nn.Module]) -> list[str]:
    names = {id(module): name for name, module in model.named_modules()}
    return [names[id(each)] for each in wanted]
