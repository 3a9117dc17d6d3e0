"""The architectures of docs/memory-accuracy.md.

Configs are those of the catalogue's cards, or for families without a card the published ones named
here; `layers` cuts the deepest down, since every term of a layer is linear in their number.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from tunec.schemas.models.catalogue import card

Class = Literal["dense", "moe", "vision-language", "encoder-decoder", "encoder", "diffusion"]


@dataclass(frozen=True, slots=True)
class Model:
    """An architecture of the table."""

    name: str
    kind: Class
    config: dict[str, Any]
    source: str
    layers: int = 0
    """The number of layers that are kept; 0: all."""


def _models() -> Iterator[Model]:
    rows = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    for kind, models in rows.items():
        for name, row in models.items():
            layers = row.get("layers", 0)
            if "config" in row:
                source = f"{row['repository']}, config.json"
                yield Model(name, kind, row["config"], source, layers)
            else:
                yield Model(name, kind, card(name).config, f"card {name}", layers)


MODELS: Final = tuple(_models())
BY_NAME: Final = {model.name: model for model in MODELS}
_DEPTH: Final = ("num_hidden_layers", "num_layers", "n_layer")


def config_of(model: Model) -> dict[str, Any]:
    """The model's config with only the layers that are kept."""
    config = dict(model.config)
    if model.layers:
        config = _cut(config, model.layers)
        if isinstance(config.get("text_config"), dict):
            config["text_config"] = _cut(config["text_config"], model.layers)
    return config


def _cut(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """The config with so many layers, and without lists that have an entry for each old layer."""
    depth = {key: layers for key in _DEPTH if key in config}
    lists = ("layer_types", "mlp_layer_types")
    return {k: v for k, v in config.items() if k not in lists} | depth
