"""What PEFT picks of a whole state dict if something wraps the layers of the model."""

import functools
import tempfile
from typing import Any

import pytest

peft = pytest.importorskip("peft")


def adapted() -> Any:
    """Two layers with an adapter on one linear module each."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 16, "hidden_size": 8, "intermediate_size": 8}
    config = LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=2)
    lora = peft.LoraConfig(r=2, target_modules=["q_proj"])
    return peft.get_peft_model(LlamaForCausalLM(config), lora)


def picked(model: Any, whole: Any) -> int:
    """How many tensors of a state dict without wrappers are the adapter's."""
    return len(peft.get_peft_model_state_dict(model, state_dict=dict(whole)))


def test_adapters_of_wrapped_layers_are_not_found() -> None:
    """fsdp-adapter-saved-empty"""
    import torch
    from torch import distributed
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing,
    )
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    plain, recomputed, sharded = adapted(), adapted(), adapted()
    whole = plain.state_dict()
    assert picked(plain, whole) == 4
    apply_activation_checkpointing(
        recomputed, check_fn=lambda module: isinstance(module, LlamaDecoderLayer)
    )
    assert picked(recomputed, whole) == 0
    layers = {LlamaDecoderLayer}
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=layers)
    with tempfile.TemporaryDirectory() as folder:
        distributed.init_process_group("gloo", f"file://{folder}/met", rank=0, world_size=1)
        try:
            FullyShardedDataParallel(
                sharded,
                auto_wrap_policy=policy,
                use_orig_params=True,
                device_id=torch.device("cpu"),
            )
        finally:
            distributed.destroy_process_group()
    assert picked(sharded, whole) == 0
