"""What Axolotl hands on by its YAML: to the loader, to the trainer's arguments, to its own kernels.

Runs inside an environment that holds one release of axolotl, with transformers and trl of its
season. Verbs: `quantise`, `train`, `prefer`, `patch`.
"""

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from lints.consumers.axolotl_runs import validated
from lints.consumers.missing_stand_ins import stand_in

# kernels, trackers and clouds; and tokenizers of Mistral's own, which its stand-ins do not go with
stand_in("bitsandbytes", "triton", "torchao", "torchvision", "numba", "axolotl.utils.mistral")
stand_in("posthog", "fastcore", "evaluate", "wandb")
sys.modules["colorama"] = MagicMock()


class _Told(Exception):
    """Arguments have been made: what comes next is not asked for."""


def quantise(question: Mapping[str, Any]) -> dict[str, Any]:
    """The bits in which a base is to be loaded, None where it is not quantised."""
    from axolotl.loaders import model

    kept = SimpleNamespace(
        cfg=validated(question),
        model_kwargs={},
        model_config=object(),
        is_qlora_and_fsdp_enabled=False,
    )
    with patch.object(model, "BitsAndBytesConfig", dict):
        model.ModelLoader._set_quantization_config(kept)
    held = kept.model_kwargs.get("quantization_config", {})
    return {"bits": 4 if held.get("load_in_4bit") else 8 if held.get("load_in_8bit") else None}


def _told(builder: Any, method: str, home: Any, name: str) -> dict[str, Any]:
    """The arguments that a builder's method gives the class of that name in a module."""
    made: dict[str, Any] = {}

    def record(**given: Any) -> None:
        made.update(given)
        raise _Told

    builder._set_base_training_args = lambda *_, **__: ({"output_dir": "out", "max_length": 8}, {})
    with patch.object(home, name, record):
        try:
            getattr(builder, method)(100)
        except _Told:
            return {key: value for key, value in made.items() if isinstance(value, bool | float)}
    raise LookupError(name)


def train(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments of supervised training are given."""
    from axolotl.core import training_args
    from axolotl.core.builders.causal import HFCausalTrainerBuilder
    from axolotl.utils import config

    cfg = validated(question)
    with (
        patch.object(config, "load_model_config", lambda _: MagicMock(model_type="llama")),
        patch.object(config, "choose_device", lambda _: None),
    ):
        config.normalize_config(cfg)
    builder = HFCausalTrainerBuilder.__new__(HFCausalTrainerBuilder)
    builder.cfg = cfg
    return _told(builder, "build", training_args, "AxolotlTrainingArguments")


def prefer(question: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments of a preference method are given."""
    from axolotl.core import training_args
    from axolotl.core.builders import rl

    kinds = {"dpo": (rl, "AxolotlDPOConfig"), "simpo": (training_args, "AxolotlCPOConfig")}
    builder = rl.HFRLTrainerBuilder.__new__(rl.HFRLTrainerBuilder)
    builder.cfg = validated(question)
    return _told(builder, "_build_training_arguments", *kinds[question["config"]["rl"]])


def patch_kernels(question: Mapping[str, Any]) -> dict[str, Any]:
    """What is said where a tiny model is to take the kernels, and whether any layer took one."""
    import peft
    import transformers
    from axolotl.monkeypatch import lora_kernels

    told: list[str] = []
    cfg = validated(question)
    tiny = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "vocab_size": 16}
    base = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=1, **tiny))
    held = peft.LoraConfig(
        task_type="CAUSAL_LM", target_modules="all-linear", lora_dropout=cfg.lora_dropout
    )
    model = peft.get_peft_model(base, held)
    plain = model.model.model.layers[0].mlp.forward.__func__
    with patch.object(lora_kernels.LOG, "warning", told.append):
        lora_kernels.apply_lora_kernel_patches(model, cfg)
    return {
        "warned": " | ".join(told),
        "patched": model.model.model.layers[0].mlp.forward.__func__ is not plain,
    }


VERBS = {"quantise": quantise, "train": train, "prefer": prefer, "patch": patch_kernels}
