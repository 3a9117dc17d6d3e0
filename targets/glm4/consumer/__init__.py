"""How `FinetuningConfig.from_file` of zai-org/GLM-4 reads finetune.yaml, with its libraries.

Runs inside an environment that holds a release of transformers and ruamel.yaml. Verb: `resolve`.
"""

import dataclasses as dc
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Optional, Union

from peft import PeftConfig, get_peft_config
from transformers import GenerationConfig, Seq2SeqTrainingArguments

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import plain
from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace
from tunec.targets.huggingface.consumer.arguments import nothing_yet, settled
from tunec.targets.huggingface.consumer.hardware import machine
from tunec.targets.scripts.extract import definitions

_CLASSES: Final = ("DataConfig", "FinetuningConfig")


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """Pass finetune.yaml to the script's own classes.

    In: `source`, the path of the script; `files` by name, with finetune.yaml among them;
    `world_size`; `capability` and `emulates_bf16`; `model_config` and `max_steps`. Out: `version`;
    `refused` (None, or stage, type and message); `values` of the configuration, its blocks
    resolved; `derived`, what the Trainer computes from its arguments; `deepspeed`, the ds_config
    that the engine would get.
    """
    answer = nothing_yet()
    kind = _configuration(question["source"])
    world = question.get("world_size", 1)
    with workplace(question["files"]), machine(declared(question), world):
        try:
            with stage("parse"):
                held = kind.from_file("finetune.yaml")
            return answer | _told(held) | settled(held.training_args, question)
        except Refused as refused:
            return answer | {"refused": refused.told()}


def _configuration(source: str) -> Any:
    text = Path(source).read_text(encoding="utf-8")
    # a split is only used as a word in an annotation of `DataConfig.data_files`
    splits = ModuleType("splits")
    given = {
        "dc": dc,
        "os": os,
        "Path": Path,
        "Optional": Optional,
        "Union": Union,
        "yaml": import_module("ruamel.yaml"),
        "PeftConfig": PeftConfig,
        "get_peft_config": get_peft_config,
        "NamedSplit": splits,
        "GenerationConfig": GenerationConfig,
        "Seq2SeqTrainingArguments": Seq2SeqTrainingArguments,
    }
    sys.modules["script"] = ModuleType("script")
    return definitions(text, _CLASSES, given)["FinetuningConfig"]


def _told(held: Any) -> dict[str, Any]:
    arguments = held.training_args
    values = {each.name: getattr(held, each.name) for each in dc.fields(held)}
    values["training_args"] = {
        each.name: getattr(arguments, each.name, None) for each in dc.fields(arguments)
    }
    generation = values["training_args"].pop("generation_config")
    return {"values": {**plain(values), "generation_config": plain(generation.to_diff_dict())}}


VERBS = {"resolve": resolve}
