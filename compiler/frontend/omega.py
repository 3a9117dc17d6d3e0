"""The one place that calls OmegaConf: it merges layers and resolves interpolations.

It is imported where there is something to compose. Nothing with a resolver reaches it: what is
interpolated has been checked by `interpolation.py` before.
"""

from collections.abc import Sequence
from typing import Any, Final

from tunec.compiler.frontend.layers import MISSING

_MASK: Final = "\ue000"
"""Stands for `$` while layers are merged: OmegaConf would follow `${...}` in the middle of it."""


def merge_values(layers: Sequence[Any]) -> Any:
    """Merge plain mappings, later ones over earlier ones; interpolations are left as they are."""
    from omegaconf import OmegaConf

    merged = OmegaConf.merge(*(OmegaConf.create(_masked(layer)) for layer in layers))
    return _unmasked(OmegaConf.to_container(merged))


def resolve_values(data: Any) -> Any:
    """Replace every `${...}` of a plain mapping; raise ValueError where one cannot be followed."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        return OmegaConf.to_container(OmegaConf.create(data), resolve=True)
    except (OmegaConfBaseException, RecursionError) as fault:
        raise ValueError(str(fault).partition("\n")[0]) from None


def _masked(value: Any) -> Any:
    return _mapped(value, "${", _MASK + "{")


def _unmasked(value: Any) -> Any:
    return _mapped(value, _MASK + "{", "${")


def _mapped(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(child, old, new) for key, child in value.items()}
    if isinstance(value, list):
        return [_mapped(child, old, new) for child in value]
    return value.replace(old, new) if isinstance(value, str) and value != MISSING else value
