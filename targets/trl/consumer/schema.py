"""The JSON Schema of the file of `trl sft`, `trl dpo` or `trl grpo`, from its dataclasses."""

from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any, Final

import torch
import transformers
import trl

from tunec.compiler.consumers.json_types import Schema
from tunec.targets.huggingface.consumer.schema import field_schema, fields_of
from tunec.targets.huggingface.consumer.trl_classes import classes, parser
from tunec.targets.huggingface.consumer.trl_files import script

_ENVIRONMENT: Final[Schema] = {"type": "object", "x-class": "TrlParser"}
"""Variables that the parser sets before it parses: `TrlParser.parse_args_and_config`."""


def schema(question: Mapping[str, Any]) -> Schema | None:
    """The schema (draft 2020-12) of the file of `method`; None if the release has no script.

    `x-class` names the class that a key is a field of.
    """
    method = question["method"]
    kinds = classes(method)
    if kinds is None:
        return None
    found: dict[str, Schema] = {"env": dict(_ENVIRONMENT)}
    required: list[str] = []
    for kind in kinds:
        for key, hint, default in fields_of(kind):
            found[key] = {**field_schema(hint, default), "x-class": kind.__name__}
            required += [key] if default is MISSING else []
    if hasattr(parser(), "update_dataclasses_with_config"):
        found[_PATTERN] = _or_text(found[_PATTERN])
    return _document(method, found, required)


_PATTERN: Final = "lora_target_modules"
"""A key that PEFT also accepts as a text. trl 0.8.6 commands/cli_utils.py
`update_dataclasses_with_config` sets the file's values on finished objects, whatever their
types."""


def _or_text(kind: Schema) -> Schema:
    return {**kind, "anyOf": [{"type": "string"}, *kind["anyOf"]]}


def _document(method: str, found: Mapping[str, Schema], required: list[str]) -> Schema:
    refuses = _refuses_unknown(method)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"the file of `trl {method}` in trl {trl.__version__}",
        "x-consumer": f"trl=={trl.__version__}",
        "x-beside": [
            f"torch=={torch.__version__.split('+')[0]}",
            f"transformers=={transformers.__version__}",
        ],
        "x-unknown": "refused" if refuses else "ignored",
        "type": "object",
        "properties": dict(found),
        "required": required,
        "additionalProperties": not refuses,
    }


_WHOLE: Final = "model_name_or_path: model\noutput_dir: out\ndataset_name: data\nuse_cpu: true\n"


def _refuses_unknown(method: str) -> bool:
    """Whether the script refuses a key that no class has; some releases ignore it."""
    whole, more = (
        script({"method": method, "yaml": text})["refused"]
        for text in (_WHOLE, f"{_WHOLE}no_class_has_this: 1\n")
    )
    if whole is not None:
        raise RuntimeError(f"trl {trl.__version__} refuses a file with known keys: {whole}")
    return more is not None
