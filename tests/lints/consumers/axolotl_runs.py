"""Axolotl's own reading of its YAML, up to where it would load a model.

Runs inside an environment that holds one release of axolotl. Verbs: `read`, `strategy`, `model`,
`thaw`.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


def read(question: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of `config` on `devices` of compute capability `sm`: refused, or its values."""
    try:
        held = validated(question)
    except Exception as refusal:  # noqa: BLE001  the refusal is the answer
        return {"refused": "read", "text": f"{type(refusal).__name__}: {refusal}"}
    return {"values": {key: _plain(value) for key, value in dict(held).items()}}


def validated(question: Mapping[str, Any]) -> Any:
    """The config of a question as Axolotl goes on with it; whatever Axolotl raises."""
    from axolotl.utils.config import validate_config
    from axolotl.utils.dict import DictDefault

    _name_plugins(question["config"].get("plugins") or ())
    devices, sm = question.get("devices", 1), question.get("sm", 90)
    capabilities = {
        "bf16": sm >= 80,
        "fp8": sm >= 89,
        "tf32": sm >= 80,
        "n_gpu": devices,
        "n_node": 1,
        "compute_capability": f"sm_{sm}",
    }
    return validate_config(
        DictDefault(dict(question["config"])),
        capabilities=capabilities,
        env_capabilities={"torch_version": "2.8.0"},
    )


def _name_plugins(names: Sequence[str]) -> None:
    """Let the arguments of these plugins be merged: what else is theirs wants kernels."""
    from importlib.util import find_spec

    from axolotl.integrations.base import PluginManager

    manager = PluginManager.get_instance()
    manager.plugins.clear()
    spec = find_spec("axolotl")
    assert spec is not None
    for module in {name.rpartition(".")[0] for name in names}:
        folder = Path(next(iter(spec.submodule_search_locations or ())), *module.split(".")[1:])
        package = sys.modules.setdefault(module, ModuleType(module))
        package.__path__ = [str(folder)]
        said = "".join(each.read_text("utf-8") for each in folder.glob("*.py"))
        found = re.search(rf'return "{module}[.\w]*\.(\w+)"', said)
        if found:
            told = partial(str, f"{module}.args.{found[1]}")
            manager.plugins[module] = SimpleNamespace(get_input_args=told)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value.value if hasattr(value, "value") else value
    return [_plain(each) for each in value] if isinstance(value, list) else str(value)


def strategy(question: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the preference method has a function for `types` of data sets."""
    import sys
    from importlib import import_module
    from unittest.mock import MagicMock

    sys.modules.setdefault("colorama", MagicMock())  # for a debugger, which none asks for
    from axolotl.utils.dict import DictDefault

    load = import_module(f"axolotl.prompt_strategies.{question['method']}").load
    kept = DictDefault({"datasets": [{"path": "a", "type": {}}], "chat_template": "chatml"})
    found = {each: load(each, kept, dataset_idx=0) for each in question["types"]}
    return {"found": [each for each, held in found.items() if held is not None]}


def model(question: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of `config` beside a model's own, a Llama's, before weights are loaded."""
    import transformers

    module = _apart("loaders/utils.py")
    from axolotl.utils.dict import DictDefault

    try:
        module.check_model_config(
            DictDefault(dict(question["config"])), transformers.LlamaConfig(num_hidden_layers=1)
        )
    except ValueError as refusal:
        return {"refused": "load", "text": str(refusal)}
    return {"taken": True}


def thaw(question: Mapping[str, Any]) -> dict[str, Any]:
    """Which weights of a tiny Llama train after `patterns`, with LoRA on its queries or without."""
    import peft
    import transformers

    module = _apart("utils/freeze.py")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64}
    held: Any = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(num_hidden_layers=1, **sizes)
    )
    if question["adapts"]:
        held = peft.get_peft_model(held, peft.LoraConfig(target_modules=["q_proj"]))
    module.freeze_layers_except(held, question["patterns"])
    return {"trained": [name for name, each in held.named_parameters() if each.requires_grad]}


def _apart(path: str) -> Any:
    """A module of Axolotl by its file, without its package, which imports kernels."""
    from importlib.util import find_spec, module_from_spec, spec_from_file_location
    from pathlib import Path

    package = find_spec("axolotl")
    places = package.submodule_search_locations if package is not None else None
    assert places
    spec = spec_from_file_location("axolotl_apart", Path(next(iter(places)), path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VERBS = {"read": read, "strategy": strategy, "model": model, "thaw": thaw}
