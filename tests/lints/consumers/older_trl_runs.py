"""Trainers of an older TRL on a tiny model, with a tokenizer and samples that are made here.

Runs inside an environment that holds the release. Verbs: `prefer`, `pack`, `report`, `optimise`,
`serve`, `stream`, `evaluate`, `shard`.
"""

import importlib
import logging
import os
import string
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

_PROMPT = " ".join(string.ascii_lowercase)

_NONE = "<unk>"


def _tokenizer() -> Any:
    """One token a letter."""
    import tokenizers
    import transformers

    unknown = {"unk_token": _NONE}
    known = {word: at for at, word in enumerate(["<pad>", "</s>", _NONE, *string.ascii_lowercase])}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, **unknown))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    names = {"pad_token": "<pad>", "eos_token": "</s>", **unknown}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names)


def _model() -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    small = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 32}
    config = transformers.LlamaConfig(**small, num_attention_heads=2, num_key_value_heads=2)
    return transformers.LlamaForCausalLM(config)


def _held(kind: Any, said: Mapping[str, Any]) -> Any:
    here = {"output_dir": "out", "use_cpu": True, "bf16": False, "report_to": "none"}
    return kind(**{**said, **here})


def prefer(question: Mapping[str, Any]) -> dict[str, Any]:
    """How many tokens of the answers are left to a pair of samples under the lengths of `said`."""
    import datasets
    import trl

    row = {"prompt": _PROMPT, "chosen": " a b c", "rejected": " c b a"}
    trainer = trl.DPOTrainer(
        model=_model(),
        ref_model=_model(),
        args=_held(trl.DPOConfig, question["said"]),
        train_dataset=datasets.Dataset.from_list([row] * 2),
        processing_class=_tokenizer(),
    )
    batch = next(iter(trainer.get_train_dataloader()))
    told = trainer.concatenated_forward(trainer.model, batch)
    return {"chosen": told["chosen_logps"].tolist(), "rejected": told["rejected_logps"].tolist()}


def pack(question: Mapping[str, Any]) -> dict[str, Any]:
    """What is warned of where samples are packed, and whether one sample sees another.

    `moved` says whether the outputs of the second sample of a sequence change with the first.
    """
    import datasets
    import torch
    import trl

    told: list[str] = []
    hears = logging.Handler()
    hears.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("trl.trainer.sft_trainer").addHandler(hears)
    model = _model()
    trl.SFTTrainer(
        model=model,
        args=_held(trl.SFTConfig, question["said"]),
        train_dataset=datasets.Dataset.from_list([{"text": _PROMPT}] * 4),
        processing_class=_tokenizer(),
    )
    one, other = (torch.tensor([[first, first, 5, 6]]) for first in (3, 4))
    with torch.no_grad():
        moved = model(input_ids=one).logits[0, 2:] - model(input_ids=other).logits[0, 2:]
    return {"warned": " | ".join(told), "moved": bool(moved.abs().max() > 0)}


def report(question: Mapping[str, Any]) -> dict[str, Any]:
    """What transformers' callback for wandb says, with a package of that name and `variables`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, question["variables"]),
        patch.object(sys, "path", [folder, *sys.path]),
    ):
        Path(folder, "wandb.py").write_text("run = None\n", encoding="utf-8")
        importlib.invalidate_caches()
        from transformers.integrations import WandbCallback

        try:
            WandbCallback()
        except RuntimeError as refusal:
            return {"refused": "init", "text": str(refusal)}
    return {"refused": None}


def optimise(question: Mapping[str, Any]) -> dict[str, Any]:
    """What PPO makes of the batches of `said`: refused, or the samples of a minibatch."""
    import datasets
    import transformers
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    config = _model().config
    config.num_labels = 1
    kinds = {
        each: transformers.LlamaForSequenceClassification(config)
        for each in ("reward_model", "value_model")
    }
    try:
        trainer = PPOTrainer(
            args=_held(PPOConfig, question["said"]),
            processing_class=_tokenizer(),
            model=_model(),
            ref_model=_model(),
            train_dataset=datasets.Dataset.from_list([{"input_ids": [3, 4]}] * 4),
            **kinds,
        )
    except (AssertionError, ValueError) as refusal:
        return {"refused": "init", "text": str(refusal)}
    return {"refused": None, "samples": trainer.args.local_mini_batch_size}


def serve(question: Mapping[str, Any]) -> dict[str, Any]:
    """Where GRPO starts vLLM with `devices`, of which as many train as there are `processes`."""
    import accelerate
    import datasets
    import torch
    from trl.trainer import grpo_trainer

    made: dict[str, Any] = {}
    one = property(lambda _: question["processes"])
    worker = "vllm.worker.worker"
    stood = {each: MagicMock() for each in ("vllm", "vllm.worker", worker)}
    with (
        patch.object(grpo_trainer, "is_vllm_available", lambda: True),
        patch.object(grpo_trainer, "LLM", lambda **given: made.update(given), create=True),
        patch.object(grpo_trainer, "SamplingParams", MagicMock(), create=True),
        patch.object(torch.cuda, "device_count", lambda: question["devices"]),
        patch.object(accelerate.Accelerator, "num_processes", one),
        patch.dict(sys.modules, stood),
    ):
        try:
            grpo_trainer.GRPOTrainer(
                model=_model(),
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                args=_held(grpo_trainer.GRPOConfig, question["said"]),
                train_dataset=datasets.Dataset.from_list([{"prompt": _PROMPT}] * 2),
                processing_class=_tokenizer(),
            )
        except ValueError as refusal:
            return {"refused": "init", "text": str(refusal)}
    return {"refused": None, "device": made["device"]}


def stream(question: Mapping[str, Any]) -> dict[str, Any]:
    """What GRPO says to prompts that are read one after the other."""
    import datasets
    import trl

    rows = datasets.Dataset.from_list([{"prompt": _PROMPT}] * 8)
    try:
        trl.GRPOTrainer(
            model=_model(),
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=_held(trl.GRPOConfig, question["said"]),
            train_dataset=rows.to_iterable_dataset() if question["streams"] else rows,
            processing_class=_tokenizer(),
        )
    except NotImplementedError as refusal:
        return {"refused": "init", "text": str(refusal)}
    return {"refused": None}


def evaluate(question: Mapping[str, Any]) -> dict[str, Any]:
    """What an evaluation returns, and what it writes to the log."""
    import datasets
    import trl

    rows = datasets.Dataset.from_list([{"text": _PROMPT}] * 2)
    trainer = trl.SFTTrainer(
        model=_model(),
        args=_held(trl.SFTConfig, question["said"]),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=_tokenizer(),
    )
    told = trainer.evaluate()
    return {"returned": sorted(told), "logged": sorted(trainer.state.log_history[-1])}


def shard(question: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of an adapter that accelerate puts into a checkpoint, with and without shards.

    Two processes are made out; nothing is sent between them.
    """
    import peft
    import torch
    from accelerate.utils import fsdp_utils
    from torch.distributed.checkpoint.state_dict import StateDictOptions
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (2,))
        model = peft.get_peft_model(_model(), peft.LoraConfig(**question["said"]))
        fully_shard(model, mesh=mesh)
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        held = fsdp_utils._get_model_state_dict(model, adapter_only=True, sd_options=options)
        pairs = [(each.shape[0], each.to_local().shape[0]) for each in _of(held, DTensor)]
    finally:
        torch.distributed.destroy_process_group()
    return {"tensors": len(held), "in_shards": len(pairs), "rows": pairs}


def _of(held: Mapping[str, Any], kind: type) -> list[Any]:
    return [each for each in held.values() if isinstance(each, kind)]


VERBS = {
    "prefer": prefer,
    "pack": pack,
    "report": report,
    "optimise": optimise,
    "serve": serve,
    "stream": stream,
    "evaluate": evaluate,
    "shard": shard,
}
