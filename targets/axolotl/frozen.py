"""The rows of Axolotl's YAML for the parts of a model that full fine-tuning does not train."""

import re
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json
from tunec.schemas.frozen import replace
from tunec.targets.axolotl.packages import WRITTEN
from tunec.targets.read_only import observed, split_names
from tunec.targets.rows import row

_FREEZES: Final = "axolotl 0.8.1 to 0.19.0 utils/freeze.py `freeze_layers_except`"
_TRAINED: Final = "unfrozen_parameters"
_SEES: Final = "freeze_mm_modules"
_LAYERS: Final = "lora_target_modules"
_BESIDE: Final = (_LAYERS, "lora_target_linear", "lora_modules_to_save")
_SEEING: Final = ("vision", "visual", "audio", "projector")
"""In the names of modules that `freeze_mm_modules` freezes."""
_TABLES: Final = (
    *("embed_tokens", "embed_tokens_per_layer", "embed_positions", "embed_in", "embedding"),
    *("embeddings", "word_embeddings", "position_embedding", "tile_embedding", "pos_embed"),
    *("audio_bos_eos_token", "wte", "wpe"),
)
"""The names of embeddings: the modules of kind `embedding` in `compiler/analyses/architecture`."""
NAMES: Final[Mapping[str, str]] = {
    "vision": "(model.)?(visual.(?!merger|deepstack_merger)|vision_tower.(?!vit_merger)|"
    "vision_model.)",
    "projector": "(model.)?(visual.(merger|deepstack_merger)|vision_tower.vit_merger|"
    "multi_modal_projector.|embed_vision.|embed_audio.|connector.|merger.|image_newline)",
    "text": "(model.)?(language_model|text_model|lm_head|projector).",
    "embeddings": f".+.({'|'.join(_TABLES)}).weight",
}
"""How the names of a part's weights begin in transformers 4.57 and later, by part.

Axolotl escapes each dot that no plus follows: utils/freeze.py `LayerNamePattern.__init__`.
"""
_ALL_BUT: Final = re.compile(r"\(\?!(?P<names>.*)\)")


def _pattern(frozen: tuple[str, ...]) -> str:
    """The pattern of all weights but those of the parts, as it is matched from a name's start."""
    return f"(?!{'|'.join(NAMES[part] for part in frozen)})"


def _write(plan: Plan) -> Mapping[str, Json]:
    frozen = plan.adapter.frozen
    return {_TRAINED: [_pattern(frozen)]} if frozen else {}


def _parts(patterns: Json) -> tuple[str, ...] | None:
    """The parts that a list of patterns leaves frozen; None if it is none of those written here."""
    said = patterns if isinstance(patterns, list) and len(patterns) == 1 else [""]
    found = _ALL_BUT.fullmatch(str(said[0]))
    names = found["names"] if found else ""
    parts = tuple(part for part, each in NAMES.items() if each in names)
    return parts if parts and _pattern(parts) == said[0] else None


def _read(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The frozen parts; beside an adapter, both keys choose among its weights, too."""
    patterns, freezes_sight = found.get(_TRAINED), bool(found.get(_SEES))
    if not patterns and (not freezes_sight or _adapts_text(found)):
        return {"adapter.frozen": ()}
    if found.get("adapter"):
        return {}
    parts = _parts(patterns) if patterns else ("vision", "projector")
    return {} if parts is None else {"adapter.frozen": parts}


def _adapts_text(found: Mapping[str, Json]) -> bool:
    """Whether adapters alone are trained, and patterns put them into the language model alone."""
    names = split_names(found.get(_LAYERS))
    is_all = any(found.get(key) for key in _BESIDE[1:])
    return bool(found.get("adapter") and names) and not is_all and all(map(_reads_text, names))


def _reads_text(name: str) -> bool:
    return "language_model" in name and not any(each in name for each in _SEEING)


def _row(keys: tuple[str, ...], source: str, *, since: str, until: str | None = None) -> Entry:
    slots = ("adapter.frozen",)
    nothing = {"adapter.frozen": ()}
    return row(keys, slots, _write, _read, source, since=since, until=until, absent=nothing)


FROZEN: Final = (
    observed((_TRAINED,), ("adapter.frozen",), _read, _FREEZES, until=WRITTEN),
    _row((_TRAINED, "adapter"), _FREEZES, since=WRITTEN, until="0.17"),
    replace(
        _row(
            (_TRAINED, _SEES, "adapter", *_BESIDE),
            f"{_FREEZES}; from 0.17 `freeze_mm_modules`, which freezes what sees, hears and "
            "projects",
            since="0.17",
        ),
        beside=_BESIDE,
    ),
)
