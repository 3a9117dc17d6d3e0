"""The examples of the rules' pages as questions to the programs that read such files."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from tests.lints.lint_pages import Example, examples
from tests.lints.refusals import nested

from tunec.compiler.consumers import runner
from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ConsumerFailed, ask_each
from tunec.compiler.consumers.sets import choose

FOLDER: Final = Path(__file__).parent.parent
ROOT: Final = Path(runner.__file__).parents[2]
Question = Mapping[str, Any]


_CAPABILITIES: Final = {"p100": [6, 0], "v100": [7, 0], "t4": [7, 5]}
_DATA: Final = [
    {
        "id": "photos",
        "type": "local",
        "instance_data_dir": "data/photos",
        "cache_dir_vae": "cache/vae/photos",
        "resolution": 1024,
        "resolution_type": "pixel_area",
    },
    {
        "id": "text",
        "type": "local",
        "dataset_type": "text_embeds",
        "default": True,
        "cache_dir": "cache/text",
    },
]
"""Sound data sets of SimpleTuner, for examples that bring none."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program of a package, the script that asks it, and what it is asked of an example."""

    package: str
    script: str
    question: Callable[[Example], Question]
    root: Path = ROOT


def text_of(example: Example, *ends: str) -> str:
    """The first file with one of these endings."""
    return next(text for name, text in example.files.items() if name.endswith(ends))


def option(example: Example, name: str, otherwise: str = "") -> str:
    """The value of a flag of the example's command."""
    given = example.arguments
    return given[given.index(name) + 1] if name in given else otherwise


def _world(example: Example) -> int:
    return int(option(example, "--world-size", "1"))


def _training(example: Example) -> Question:
    files = dict(example.files)
    name = next(each for each in files if each.startswith("training_args"))
    text = files.pop(name)
    said = yaml.safe_load(text)
    if "ds_config.json" in files and "deepspeed" not in said:
        text += "deepspeed: ds_config.json\n"  # the two are given as one run
    model = json.loads(files["config.json"]) if "config.json" in files else {"hidden_size": 64}
    return {
        "verb": "resolve",
        "yaml": text,
        "files": files,
        "world_size": _world(example),
        "model_config": model,
        "max_steps": max(said.get("max_steps", 0), 0) or 100,
        **_device(example),
    }


def _device(example: Example) -> Question:
    """What the hardware of the example supports: by default everything."""
    hardware = option(example, "--hardware")
    found = next((each for name, each in _CAPABILITIES.items() if hardware.startswith(name)), None)
    return {"capability": found, "emulates_bf16": False} if found else {}


def _engine(verb: str) -> Callable[[Example], Question]:
    def ask(example: Example) -> Question:
        config = json.loads(text_of(example, "ds_config.json", "ds.json"))
        question = {
            "verb": verb,
            "config": config,
            "world_size": _world(example),
            "steps": 40,
            **_device(example),
        }
        # where the file names no optimizer, the script brings one
        return question if "optimizer" in config else {**question, "client_optimizer": "AdamW"}

    return ask


def _launcher(example: Example) -> Question:
    files = dict(example.files)
    words = files.pop("train.sh", "").split()
    flags = words[words.index("launch") + 1 : -1] if "launch" in words else []
    if flags[:1] == ["--config_file"]:
        flags = flags[2:]  # the file is given as a text
    text = files.pop("accelerate.yaml")
    return {"verb": "resolve", "yaml": text, "files": files, "argv": flags}


def _trl(example: Example) -> Question:
    files = dict(example.files)
    name = next(each for each in files if each in ("sft.yaml", "dpo.yaml", "grpo.yaml"))
    method, text = name.removesuffix(".yaml"), files.pop(name)
    return {
        "verb": "resolve",
        "method": method,
        "yaml": text,
        "files": files,
        "world_size": _world(example),
    }


def _simpletuner(example: Example) -> Question:
    files = {f"config/{name}": text for name, text in example.files.items()} | dict(example.files)
    files.setdefault(
        "lycoris_config.json",
        '{"algo": "lokr", "multiplier": 1.0, "linear_dim": 16, "linear_alpha": 1}',
    )
    config = json.loads(example.files.get("config.json", "{}"))
    base = {"model_family": "flux", "model_type": "lora", "optimizer": "adamw_bf16"}
    held = {**base, "output_dir": "out", **config}
    if "data_backend_config" in config:
        files[held["data_backend_config"]] = json.dumps(_DATA)
    if "multidatabackend.json" in example.files:
        held["data_backend_config"] = "config/multidatabackend.json"
    by_variables = "config.env" in example.files and not config
    if by_variables:
        files["config/multidatabackend.json"] = json.dumps(_DATA)
    else:
        files["config/config.json"] = json.dumps(held)
    return {
        "verb": "resolve",
        "backend": "env" if by_variables else "json",
        "files": files,
        "folders": ["data/photos", "data/more"],
        "processes": _world(example),
        "capability": [9, 0],
    }


def _axolotl(example: Example) -> Question:
    config = yaml.safe_load(text_of(example, "config.yaml", "axolotl.yaml", "train.yaml"))
    is_older = option(example, "--hardware").startswith("a100")
    return {
        "verb": "read",
        "config": config,
        "devices": _world(example),
        "sm": 80 if is_older else 90,
    }


def _llamafactory(example: Example) -> Question:
    files = dict(example.files)
    name = next(
        each for each in files if each in ("train.yaml", "llamafactory.yaml", "config.yaml")
    )
    config = yaml.safe_load(files.pop(name))
    kind = "qwen2" if "qwen2" in str(config.get("model_name_or_path", "")).lower() else "llama"
    model = {"model_type": kind, "max_position_embeddings": 8192, "rope_scaling": None}
    if "GPTQ" in str(config.get("model_name_or_path")):
        model["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    several = _world(example) > 1
    return {
        "verb": "read",
        "config": config,
        "files": files,
        "model_config": model,
        "several": several,
    }


def _ms_swift(example: Example) -> Question:
    files = dict(example.files)
    text = files.pop("train.yaml")
    return {
        "verb": "resolve",
        "method": "rlhf" if "rlhf_type" in yaml.safe_load(text) else "sft",
        "yaml": text,
        "files": files,
        "config": {"model_type": "qwen2"},
        "world_size": _world(example),
        "devices": _world(example),
    }


def _unsloth(example: Example) -> Question:
    return {"verb": "resolve", "yaml": text_of(example, "train.yaml")}


def _openrlhf(example: Example) -> Question:
    words = shlex.split(text_of(example, "train.sh").replace("\\\n", " "))
    start = next(at for at, word in enumerate(words) if word.startswith("openrlhf.cli"))
    asks = {"program": words[start], "argv": words[start + 1 :], "samples": 9000}
    return {"verb": "resolve", **asks, "world_size": 4}


def _openrlhf_rewards(example: Example) -> Question:
    return {**_openrlhf(example), "verb": "check"}


_GROUPS: Final = ("model_engine", "engine", "optim")


def _composed(program: str, script: str) -> str:
    """A file that says what Hydra's words of a command say over the program's own file."""
    words = shlex.split(script.replace("\\\n", " "))[3:]
    said = dict(word.split("=", 1) for word in words)
    own = "ppo_trainer" if program == "ppo" else "sft_trainer_engine"
    groups = [{f"override {key}": said.pop(key)} for key in _GROUPS if key in said]
    values = nested({key: yaml.safe_load(value) for key, value in said.items()})
    return yaml.safe_dump({"defaults": [own, *groups, "_self_"], **values})


def _verl(program: str) -> Callable[[Example], Question]:
    def ask(example: Example) -> Question:
        held = next(iter(example.files.items()))
        text = held[1] if held[0].endswith(".yaml") else _composed(program, held[1])
        return {"verb": "check", "program": program, "yaml": text}

    return ask


PROGRAMS: Final[Mapping[str, Program]] = {
    "trainer": Program("transformers", "tunec.targets.huggingface.consumer", _training),
    "deepspeed": Program("deepspeed", "tunec.targets.deepspeed.consumer", _engine("resolve")),
    "engine": Program("deepspeed", "tunec.targets.deepspeed.consumer", _engine("initialize")),
    "accelerate": Program("accelerate", "tunec.targets.accelerate.consumer", _launcher),
    "trl": Program("trl", "tunec.targets.trl.consumer", _trl),
    "simpletuner": Program("simpletuner", "tunec.targets.simpletuner.consumer", _simpletuner),
    "axolotl": Program("axolotl", "lints.consumers.axolotl_runs", _axolotl, FOLDER),
    "llamafactory": Program(
        "llamafactory", "lints.consumers.llamafactory_runs", _llamafactory, FOLDER
    ),
    "ms-swift": Program("ms-swift", "tunec.targets.ms_swift.consumer", _ms_swift),
    "openrlhf": Program("openrlhf", "tunec.targets.openrlhf.consumer", _openrlhf),
    "openrlhf-rewards": Program(
        "openrlhf", "lints.consumers.openrlhf_rewards", _openrlhf_rewards, FOLDER
    ),
    "verl": Program("verl", "tunec.targets.verl.consumer", _verl("ppo")),
    "verl-sft": Program("verl", "tunec.targets.verl.consumer", _verl("sft")),
    "unsloth": Program("unsloth", "tunec.targets.unsloth.consumer", _unsloth),
}


@cache
def example(rule: str, kind: str, number: int) -> Example:
    """The example of a rule's page: `bad` or `good`, by number."""
    wanted = [each for each in examples(rule) if each.is_bad is (kind == "bad")]
    return wanted[number]


def ask_program(name: str, version: str, questions: list[Question]) -> list[Any]:
    """The answers of one release of a program, in one process."""
    program = PROGRAMS[name]
    environment = prepare(choose(program.package, version).requirements)
    return ask_each(environment, program.script, questions, 600.0, program.root)


def refusal(answer: Any) -> str:
    """What an answer says was refused, as text; empty where nothing was."""
    if isinstance(answer, ConsumerFailed):
        raise answer
    if isinstance(answer.get("refused"), str):
        return str(answer["text"])
    told = answer.get("refused") or answer.get("error")
    return f"{told['stage']}: {told['type']}: {told['message']}" if told else ""
