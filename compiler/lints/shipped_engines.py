"""Files for DeepSpeed that trainers ship, where one is named that is not there.

People show the trainer's file alone, and name the other as their program ships it. What it holds is
then seen in the key that names it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.context import Missing
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.schemas.frozen import replace

_AUTO: Final = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    "gradient_clipping",
)
_EITHER: Final = {"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}
_BF16: Final = {"bf16": {"enabled": True}}
_CPU: Final = {"device": "cpu", "pin_memory": True}
_OPTIMIZER: Final = {"offload_optimizer": _CPU}
_BOTH: Final = {"offload_optimizer": _CPU, "offload_param": _CPU}

_LLAMAFACTORY: Final[Mapping[str, tuple[int, Mapping[str, Any], Mapping[str, Any]]]] = {
    "ds_z0_config.json": (0, {}, _EITHER),
    "ds_z2_config.json": (2, {}, _EITHER),
    "ds_z2_offload_config.json": (2, _OPTIMIZER, _EITHER),
    "ds_z3_config.json": (3, {}, _EITHER),
    "ds_z3_offload_config.json": (3, _BOTH, _EITHER),
}
"""hiyouga/LlamaFactory v0.9.4 examples/deepspeed: stage, what is offloaded, halves."""
_AXOLOTL: Final[Mapping[str, tuple[int, Mapping[str, Any], Mapping[str, Any]]]] = {
    "zero1.json": (1, {}, _EITHER),
    "zero3.json": (3, {}, _EITHER),
    "zero3_bf16.json": (3, {}, _BF16),
    "zero3_bf16_cpuoffload_all.json": (3, _BOTH, _BF16),
    "zero3_bf16_cpuoffload_params.json": (3, {"offload_param": _CPU}, _BF16),
}
"""axolotl-ai-cloud/axolotl v0.18.0 deepspeed_configs, without zero2.json: it has changed."""
_FOLDERS: Final = ("deepspeed_configs", "deepspeed")
_MAKERS: Final = {"llamafactory": "LLaMA-Factory", "axolotl": "Axolotl"}


def as_shipped(
    documents: Sequence[Document], missing: Sequence[Missing]
) -> tuple[tuple[Document, ...], tuple[Missing, ...]]:
    """The engines that only a name tells, and the missing files with what they are taken for.

    None where a file for DeepSpeed is there: it may be the one that is meant.
    """
    if any(each.kind == "deepspeed" for each in documents):
        return (), tuple(missing)
    engines = {each.place: _engine(each.place) for each in missing}
    told = (
        replace(each, why=f"{each.why}, and it is taken as {_maker(each)} ships it")
        if engines[each.place] is not None
        else each
        for each in missing
    )
    return tuple(each for each in engines.values() if each is not None), tuple(told)


def is_shipped(document: Document) -> bool:
    """Whether a document is what a name alone tells."""
    origin = document.origin
    return document.kind == "deepspeed" and origin is not None and origin.kind in _MAKERS


def _maker(missing: Missing) -> str:
    return _MAKERS[missing.place.document.kind]


def _engine(place: Place) -> Document | None:
    """What a file holds, each key at the key that names it: no edit can be made there."""
    name = PurePosixPath(str(place.value))
    kind = place.document.kind
    if place.path != "deepspeed" or place.document.format == "shell":
        return None
    table = _LLAMAFACTORY if kind == "llamafactory" else {}
    if kind == "axolotl" and name.parent.name in _FOLDERS:
        table = _AXOLOTL
    held = table.get(name.name)
    if held is None:
        return None
    root = _at(place.node, _content(*held))
    paths = dict.fromkeys(_paths(root), place.path)
    origin = place.document
    return Document(
        origin.name, "deepspeed", origin.format, origin.text, root, origin=origin, paths=paths
    )


def _content(stage: int, held: Mapping[str, Any], halves: Mapping[str, Any]) -> dict[str, Any]:
    zero = {"stage": stage, **held}
    if stage == 3:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    return {**dict.fromkeys(_AUTO, "auto"), **halves, "zero_optimization": zero}


def _at(place: Node, value: Any) -> Node:
    if isinstance(value, dict):
        fields = {key: _at(place, each) for key, each in value.items()}
        return Node(place.span, key_span=place.key_span, fields=fields, is_inline_json=True)
    return Node(place.span, value, key_span=place.key_span, is_inline_json=True)


def _paths(node: Node, prefix: str = "") -> Iterator[str]:
    for key, child in (node.fields or {}).items():
        yield f"{prefix}{key}"
        yield from _paths(child, f"{prefix}{key}.")
