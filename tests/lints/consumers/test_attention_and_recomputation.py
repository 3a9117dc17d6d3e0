"""What transformers makes of attention and recomputation, seen on small models."""

import sys
from pathlib import Path
from unittest.mock import patch

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from test_libraries import llama, yaml_of  # noqa: E402

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("own_environment")


def test_torch_s_kernel_has_no_cap() -> None:
    """softcapping-left-out"""
    import transformers

    asked = yaml_of("softcapping-left-out", "llamafactory.yaml")["flash_attn"]
    tiny = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "vocab_size": 16}
    config = transformers.Gemma2Config(num_attention_heads=2, head_dim=8, **tiny)
    assert config.attn_logit_softcapping == 50
    make = transformers.AutoModelForCausalLM.from_config
    with pytest.raises(ValueError, match="scaled_dot_product_attention"):
        make(config, attn_implementation=asked)
    assert make(config, attn_implementation="eager").config._attn_implementation == "eager"


def test_nothing_is_kept_where_a_layer_runs_again() -> None:
    """cache-beside-checkpointing"""
    use = yaml_of("cache-beside-checkpointing", "model_args.yaml")["use_cache"]
    kept = []
    for recomputes in (False, True):
        model = llama(layers=1).train()
        if recomputes:
            model.gradient_checkpointing_enable()
        found = model(torch.ones(1, 3, dtype=torch.long), use_cache=use).past_key_values
        kept.append(0 if found is None else found.get_seq_length())
    assert kept == [3, 0]


def test_the_trainer_warns_of_another_gather() -> None:
    """gathered-again-for-recomputation"""
    from transformers import TrainingArguments, training_args

    said = yaml_of("gathered-again-for-recomputation", "training_args.yaml")
    said["fsdp_config"] = dict(said["fsdp_config"])
    said.pop("bf16")
    told: list[str] = []
    with patch.object(training_args.logger, "warning", lambda text, *_: told.append(text)):
        TrainingArguments(**said, use_cpu=True)
    assert [each for each in told if "redundant AllGather" in each]
