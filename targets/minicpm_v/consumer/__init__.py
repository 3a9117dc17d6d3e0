"""The four dataclasses of MiniCPM-V's finetune.py, filled from the flags in finetune.sh.

Runs inside an environment that holds a release of transformers. Verb: `resolve`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal, Optional, Union

import transformers

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.huggingface.consumer.arguments import nothing_yet, settled
from tunec.targets.huggingface.consumer.hardware import machine
from tunec.targets.scripts.extract import definitions

_CLASSES: Final = ("ModelArguments", "DataArguments", "TrainingArguments", "LoraArguments")


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """Parse flags as the script does, by HfArgumentParser over its own classes.

    In: `source`, the path of the script; `argv`; `files` by name; `world_size`; `capability` and
    `emulates_bf16`; `model_config` and `max_steps`. Out: `version`; `refused` (None, or stage, type
    and message); `values` of all fields; `derived`, the resolved arguments of the Trainer;
    `deepspeed`, the ds_config that the engine would get.
    """
    answer = nothing_yet()
    parser = transformers.HfArgumentParser(_kinds(question["source"]))
    world = question.get("world_size", 1)
    with workplace(question["files"]), machine(declared(question), world):
        try:
            with stage("parse"):
                held = parser.parse_args_into_dataclasses(
                    args=list(question["argv"]), look_for_args_file=False
                )
            values = {key.name: getattr(each, key.name) for each in held for key in fields(each)}
            return answer | {"values": plain(values)} | settled(held[2], question)
        except Refused as refused:
            return answer | {"refused": refused.told()}


def _kinds(source: str) -> tuple[Any, ...]:
    given = {
        "transformers": transformers,
        "dataclass": dataclass,
        "field": field,
        "Optional": Optional,
        "Union": Union,
        "Literal": Literal,
        "Dict": dict,
        "List": list,
        "Tuple": tuple,
    }
    found = definitions(Path(source).read_text(encoding="utf-8"), _CLASSES, given)
    return tuple(found[name] for name in _CLASSES)


VERBS = {"resolve": resolve}
