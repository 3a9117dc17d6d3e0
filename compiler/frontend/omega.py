"""The only module that calls OmegaConf: it merges layers and resolves interpolations.

OmegaConf is only imported if there is something to compose. No resolver reaches it:
`interpolation.py` has checked the interpolations before.
"""

from collections.abc import Sequence
from typing import Any, Final

from tunec.compiler.frontend.layers import MISSING

_MASK: Final = "\ue000"
"""Replaces `$` while layers are merged, as OmegaConf would resolve `${...}` meanwhile."""


def merge_values(layers: Sequence[Any]) -> Any:
    """Merge plain mappings, later ones over earlier ones; interpolations stay unchanged."""
    from omegaconf import OmegaConf

    merged = OmegaConf.merge(*(OmegaConf.create(_masked(layer)) for layer in layers))
    return _unmasked(OmegaConf.to_container(merged))


def resolve_values(data: Any) -> Any:
    """Replace every `${...}` of a plain mapping. Raises ValueError if one cannot be resolved."""
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
