"""LLaMA-Factory's own reading of its YAML, and what it makes of a tiny model.

Runs inside an environment that holds one release of llamafactory. Verbs: `read`, `freeze`, `loss`.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import chdir, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from lints.consumers.missing_stand_ins import stand_in


def read(question: Mapping[str, Any]) -> dict[str, Any]:
    """What becomes of `config` with `files` beside it: refused, or the values of all classes."""
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    import torch
    from llamafactory.hparams import parser

    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        patch.dict(os.environ, {"ALLOW_EXTRA_ARGS": "0", "FORCE_TORCHRUN": "1"}),
        patch.object(torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        patch.object(parser, "is_torch_bf16_gpu_available", lambda: True),
        _started(question),
    ):
        for name, text in question.get("files", {}).items():
            Path(folder, name).write_text(text, encoding="utf-8")
        try:
            parts = _read(parser, question)
            shaped = _shaped(question["model_config"], parts[0])
        except BaseException as refusal:  # noqa: BLE001  the refusal is the answer
            return {"refused": "read", "text": f"{type(refusal).__name__}: {refusal}"}
    values = {key: _plain(value) for part in parts for key, value in vars(part).items()}
    return {"values": values, "model": shaped}


def _started(question: Mapping[str, Any]) -> Any:
    """What a launcher of several processes makes of each, or nothing."""
    from transformers import TrainingArguments
    from transformers.training_args import ParallelMode

    if not question.get("several"):
        return nullcontext()
    return patch.object(TrainingArguments, "parallel_mode", ParallelMode.DISTRIBUTED)


def _read(parser: Any, question: Mapping[str, Any]) -> Any:
    """The classes of a training, or of an export, which is tried with a model that is packed."""
    config = question["config"]
    if "export_dir" not in config:
        return parser.get_train_args({"use_cpu": True, **config})
    with patch.dict(sys.modules, {"torchaudio": MagicMock()}):  # for data, which nobody reads here
        from llamafactory.train import tuner

    parts = parser.get_infer_args({**config})
    model = MagicMock(quantization_method=config.get("quantization_bit") and "bitsandbytes")
    with (
        patch.object(tuner, "load_tokenizer", lambda _: {"tokenizer": None, "processor": None}),
        patch.object(tuner, "get_template_and_fix_tokenizer", lambda *_: None),
        patch.object(tuner, "load_model", lambda *_: model),
    ):
        tuner.export_model({**config})
    return parts


def _shaped(config: Mapping[str, Any], asked: Any) -> dict[str, Any]:
    """What LLaMA-Factory makes of a model's own config before it loads the model."""
    from llamafactory.model.model_utils.longlora import configure_longlora
    from llamafactory.model.model_utils.rope import configure_rope

    held = SimpleNamespace(**config)
    if "quantization_config" in config:
        from llamafactory.model.model_utils.quantization import configure_quantization

        configure_quantization(held, None, asked, is_trainable=True, init_kwargs={})
    configure_rope(held, asked)
    configure_longlora(held, asked, is_trainable=True)
    return {key: _plain(value) for key, value in vars(held).items()}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value.value if hasattr(value, "value") else value
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else str(value)


def freeze(question: Mapping[str, Any]) -> dict[str, Any]:
    """What freeze-tuning makes of a tiny Llama by `config`: refused, or what is trained."""
    os.environ["DISABLE_VERSION_CHECK"] = "1"
    import transformers
    from llamafactory.hparams import FinetuningArguments
    from llamafactory.model import adapter

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **sizes))
    asked = FinetuningArguments(**question["config"])
    try:
        adapter._setup_freeze_tuning(
            model, asked, is_trainable=True, cast_trainable_params_to_fp32=False
        )
    except ValueError as refusal:
        return {"refused": "load", "text": str(refusal)}
    return {"trained": [name for name, each in model.named_parameters() if each.requires_grad]}


def loss(question: Mapping[str, Any]) -> dict[str, Any]:
    """The loss that TRL is asked for where `config` trains by DPO."""
    import inspect

    os.environ["DISABLE_VERSION_CHECK"] = "1"
    stand_in("torchaudio")  # for data, which nobody reads here
    from llamafactory.hparams import FinetuningArguments
    from llamafactory.train.dpo.trainer import CustomDPOTrainer
    from trl import DPOTrainer

    asked = FinetuningArguments(**question["config"])
    told: dict[str, Any] = {}

    def dpo_loss(*given: Any, **named: Any) -> tuple[int, int, int]:
        bound = inspect.signature(DPOTrainer.dpo_loss).bind(None, *given, **named)
        bound.apply_defaults()
        told.update(bound.arguments)
        return 0, 0, 0

    held = SimpleNamespace(
        finetuning_args=asked, loss_type=asked.pref_loss, bco_gemma=0.0, dpo_loss=dpo_loss
    )
    CustomDPOTrainer.compute_preference_loss(held, 0, 0, 0, 0)
    return {"loss": told.get("loss_type", asked.pref_loss)}


VERBS = {"read": read, "freeze": freeze, "loss": loss}
