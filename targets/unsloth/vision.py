"""Rows of Unsloth's file for samples with images, where parts of a model replace target names."""

from collections.abc import Callable
from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, derived
from tunec.targets.huggingface.text_layers import names_in_the_text
from tunec.targets.rows import has_adapter, has_images
from tunec.targets.unsloth.packages import SEES

_SOURCE: Final = (
    "unsloth 2026.10.8 and 2026.10.9 unsloth_cli/config.py `model_kwargs`: beside images "
    "target_modules is not looked at; unsloth_zoo 2026.10.9 peft_utils.py `get_peft_regex`"
)
_ATTENTION: Final = frozenset({"q_proj", "k_proj", "v_proj", "o_proj"})
_FORWARD: Final = frozenset({"gate_proj", "up_proj", "down_proj"})
_PARTS: Final = {
    _ATTENTION | _FORWARD: (True, True),
    _ATTENTION: (True, False),
    _FORWARD: (False, True),
}
"""Whether attention and feed-forward are adapted, by the names of layers."""


_WRAPS: Final = ("gemma4",)
"""Families whose towers wrap each layer in a module with a layer `linear`: transformers 5.5.0 to
5.23.0 models/gemma4/modeling_gemma4.py `Gemma4ClippableLinear`."""


def parts_of(plan: Plan) -> tuple[bool, bool] | None:
    """Whether attention and feed-forward have adapters; None: other layers have them."""
    targets = plan.adapter.targets
    names = names_in_the_text(plan) if isinstance(targets, str) else targets
    return _PARTS.get(frozenset(name.rpartition(".")[2] for name in names))


def _sees_unadapted(plan: Plan) -> bool:
    """Whether only the language model has adapters, by a pattern or by paths of its layers.

    Also if its tower has no layer of the target names.
    """
    targets = plan.adapter.targets
    by_path = isinstance(targets, str) or all("." in name for name in targets)
    return by_path or plan.model.family in _WRAPS


def _adapts_beside_images(plan: Plan) -> bool:
    return has_adapter(plan) and has_images(plan)


def _part(key: str, place: int) -> Entry:
    def write(plan: Plan) -> bool | None:
        found = parts_of(plan)
        return None if found is None else found[place]

    return _written(key, write)


def _written(key: str, write: Callable[[Plan], bool | None]) -> Entry:
    return derived(f"lora.{key}", write, _SOURCE, since=SEES, when=_adapts_beside_images)


VISION: Final = (
    _written("vision_all_linear", lambda _: False),
    _written("finetune_vision_layers", lambda plan: not _sees_unadapted(plan)),
    _written("finetune_language_layers", lambda _: True),
    _part("finetune_attention_modules", 0),
    _part("finetune_mlp_modules", 1),
)
"""Rows for parts: bare names are adapted anywhere, a pattern or paths only in the language
model."""
