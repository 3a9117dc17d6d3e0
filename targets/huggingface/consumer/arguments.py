"""What a transformers release makes of training arguments, and of the ds_config beside them."""

import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import transformers
from transformers import AutoConfig, HfArgumentParser
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

from tunec.compiler.consumers.devices import declared
from tunec.compiler.consumers.json_types import plain
from tunec.targets.huggingface.consumer.classes import find, version
from tunec.targets.huggingface.consumer.hardware import machine

# Values by which `automatic` sees a key filled in: any would do, for only the keys are looked at.
_SOME_STEPS: Final = 100
_SOME_SIZE: Final = 64


class Refused(Exception):
    """The consumer would not take it: `stage` says at which step, `cause` is what it raised."""

    def __init__(self, stage: str, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.stage = stage
        self.cause = cause

    def told(self) -> dict[str, str]:
        """As an answer holds it."""
        kind = type(self.cause).__name__
        return {"stage": self.stage, "type": kind, "message": str(self.cause)}


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Turn what the consumer raises within into a Refused of that stage."""
    try:
        yield
    except (ImportError, NameError, RecursionError):
        # What this machine or this script lacks; it is no refusal of the file.
        raise
    except (Exception, SystemExit) as cause:
        raise Refused(name, cause) from cause


def resolve(question: Mapping[str, Any]) -> dict[str, Any]:
    """Hand training arguments to the real parser, and the ds_config to the real "auto" filling.

    In: `class` (default TrainingArguments); one of `yaml`, `json` (the text of a file), `argv` (a
    list) or `arguments` (an object); `files`, further files by their path relative to the working
    directory; `world_size`; `capability`, `emulates_bf16`; for the ds_config also `model_config` (a
    config.json object or an object with `hidden_size`) and `max_steps` (optimizer steps of the
    run). Out: `version`; `refused` (None, or stage, type and message); `values` of all fields;
    `warnings`; `derived` (what the class computes from them); `deepspeed`, the ds_config that the
    engine would get.
    """
    answer: dict[str, Any] = {
        "version": transformers.__version__,
        "refused": None,
        "values": {},
        "derived": {},
        "deepspeed": None,
    }
    name = question.get("class", "TrainingArguments")
    with warnings.catch_warnings(record=True) as caught, workplace(question.get("files", {})):
        warnings.simplefilter("always")
        with machine(declared(question), question.get("world_size", 1)):
            try:
                _fill(answer, name, question)
            except Refused as refused:
                answer["refused"] = refused.told()
    said = [str(each.message) for each in caught if issubclass(each.category, FutureWarning)]
    return {**answer, "class_version": version(name), "warnings": sorted(set(said))}


@contextmanager
def workplace(files: Mapping[str, str]) -> Iterator[None]:
    """An empty working directory that holds `files`, texts by their relative paths."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        yield


def _fill(answer: dict[str, Any], name: str, question: Mapping[str, Any]) -> None:
    """Fill the answer as far as the consumer comes, then raise what stopped it."""
    kind = find(name)
    if kind is None:
        raise Refused("class", ImportError(f"no class {name} in this release"))
    with stage("parse"):
        (held,) = _parse(HfArgumentParser([kind]), question)
    answer["values"] = {key.name: plain(getattr(held, key.name, None)) for key in fields(held)}
    steps = question.get("max_steps") or _SOME_STEPS
    answer["derived"] = _derived(held, steps)
    if getattr(held, "deepspeed", None):
        answer["deepspeed"] = _finalized(held, question.get("model_config"), steps)


def _parse(parser: Any, question: Mapping[str, Any]) -> Any:
    """Through the entry point that a training script would use for the kind of input."""
    if "argv" in question:
        return parser.parse_args_into_dataclasses(
            args=list(question["argv"]), look_for_args_file=False
        )
    if "arguments" in question:
        return parser.parse_dict(dict(question["arguments"]))
    kind = "yaml" if "yaml" in question else "json"
    path = Path(f"arguments.{kind}")
    path.write_text(question[kind], encoding="utf-8")
    return (
        parser.parse_yaml_file(str(path)) if kind == "yaml" else parser.parse_json_file(str(path))
    )


def _derived(held: Any, steps: int) -> dict[str, Any]:
    """What the class computes: the warmup in steps, the processes, the batch a process."""
    if not hasattr(held, "get_warmup_steps"):
        return {}
    with stage("derive"):
        return {
            "warmup_steps": plain(held.get_warmup_steps(steps)),
            "world_size": held.world_size,
            "train_batch_size": held.train_batch_size,
            "parallel_mode": plain(held.parallel_mode),
            "device": str(held.device),
        }


def _finalized(held: Any, model_config: Mapping[str, Any] | None, steps: int) -> Any:
    """The ds_config once model and steps are known: what Trainer does before it trains."""
    config = held.hf_deepspeed_config
    with stage("deepspeed"):
        config.trainer_config_finalize(held, SimpleNamespace(config=_model(model_config)), steps)
    return plain(config.config)


def _model(content: Mapping[str, Any] | None) -> Any:
    if content is None:
        return SimpleNamespace()
    if "model_type" not in content:
        return SimpleNamespace(**content)
    return AutoConfig.for_model(**content)


def automatic(_: Mapping[str, Any]) -> list[str]:
    """The dotted keys of a ds_config that may say "auto": those which the release fills in."""
    asked: list[str] = []

    def note(_: Any, key: str, *__: Any, **___: Any) -> None:
        asked.append(key)

    content = {"zero_optimization": {"stage": 3} | dict.fromkeys(_BY_SIZE, "auto")}
    with (
        machine(declared({}), 1),
        patch.object(HfTrainerDeepSpeedConfig, "fill_match", note),
        patch.object(HfTrainerDeepSpeedConfig, "fill_only", note),
    ):
        held = find("TrainingArguments")(output_dir="out", fp16=True)
        config = HfTrainerDeepSpeedConfig(content)
        config.trainer_config_process(held)
        model = SimpleNamespace(config=SimpleNamespace(hidden_size=_SOME_SIZE))
        config.trainer_config_finalize(held, model, _SOME_STEPS)
    return sorted(set(asked))


# Without one of these saying "auto" the finalizing code does not reach the three:
# `hidden_size_based_keys` in integrations/deepspeed.py.
_BY_SIZE: Final = (
    "reduce_bucket_size",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
)
