"""Hands files to the parsers of trl and accelerate; runs where these are, not in the tests.

`trl_oracle.py ROOT ANSWERS < QUESTIONS`: ROOT is the folder of the package tunec.
"""

import contextlib
import importlib
import importlib.util
import json
import sys
import tempfile
from dataclasses import asdict, fields, is_dataclass
from importlib import metadata
from pathlib import Path
from unittest.mock import patch


def loaded(root):
    """The consumer's stand-in for a machine, without tunec's own dependencies."""
    place = Path(root, "compiler", "consumers", "runner.py")
    spec = importlib.util.spec_from_file_location("runner", place)
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    runner.load(Path(root), "tunec.targets.huggingface.consumer")
    return importlib.import_module("tunec.targets.huggingface.consumer.hardware")


def kinds():
    """The parser of `trl sft`, and what it parses into: it moved twice."""
    import trl
    from trl import ModelConfig

    with contextlib.suppress(ImportError):
        from trl import DatasetMixtureConfig, ScriptArguments, SFTConfig, TrlParser

        return TrlParser, (ScriptArguments, SFTConfig, ModelConfig, DatasetMixtureConfig)
    with contextlib.suppress(ImportError):
        from trl import ScriptArguments, SFTConfig, TrlParser

        return TrlParser, (ScriptArguments, SFTConfig, ModelConfig)
    from transformers import TrainingArguments
    from trl.commands import cli_utils

    config = getattr(trl, "SFTConfig", TrainingArguments)
    name = (
        "SFTScriptArguments" if hasattr(cli_utils, "SFTScriptArguments") else "SftScriptArguments"
    )
    return cli_utils.TrlParser, (getattr(cli_utils, name), config, ModelConfig)


def parse(question):
    """All values of all classes by name, and the two configurations that follow from them."""
    from trl import get_peft_config, get_quantization_config

    parser, classes = kinds()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, text in question["files"].items():
            Path(name).write_text(text)
        sys.argv = ["sft.py", "--config", "sft.yaml"]
        parts = parser(classes).parse_args_and_config()
    values = {}
    for part in parts:
        values |= {each.name: getattr(part, each.name) for each in fields(part)}
    model = parts[2]
    quantised = get_quantization_config(model)
    adapter = get_peft_config(model)
    return {
        "values": values,
        "quantization": quantised.to_dict() if quantised else None,
        "adapter": adapter.to_dict() if adapter else None,
    }


def parse_model(question):
    """model_args.yaml on its own, through the parser of transformers."""
    from transformers import HfArgumentParser
    from trl import ModelConfig

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model_args.yaml")
        path.write_text(question["text"])
        (held,) = HfArgumentParser(ModelConfig).parse_yaml_file(str(path))
    return {"values": asdict(held)}


def parse_accelerate(question):
    """accelerate.yaml on its own, as `accelerate launch` loads it."""
    from accelerate.commands.config.config_args import load_config_from_file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "accelerate.yaml")
        path.write_text(question["text"])
        return {"values": load_config_from_file(str(path)).to_dict()}


_VERBS = {"parse": parse, "model": parse_model, "accelerate": parse_accelerate}


def answer(question, hardware):
    devices = importlib.import_module("tunec.compiler.consumers.devices")
    real = metadata.version

    def version(name):
        """Only the version of bitsandbytes is asked for: nothing of it runs here."""
        return "0.48.0" if name == "bitsandbytes" else real(name)

    machine = hardware.machine(devices.declared(question), question["world_size"])
    with machine, patch.object(metadata, "version", version):
        try:
            return _VERBS[question["verb"]](question)
        except (Exception, SystemExit) as refused:  # noqa: BLE001  that is the answer
            return {"refused": f"{type(refused).__name__}: {refused}"}


def simple(value):
    if isinstance(value, set | frozenset):
        return sorted(value)
    if is_dataclass(value):
        return asdict(value)
    return getattr(value, "value", None) or str(value)


if __name__ == "__main__":
    hardware = loaded(sys.argv[1])
    questions = json.load(sys.stdin)
    Path(sys.argv[2]).write_text(
        json.dumps([answer(q, hardware) for q in questions], default=simple)
    )
