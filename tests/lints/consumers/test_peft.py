"""The real PEFT and TRL agree with the rules about LoRA: bad examples of their pages are run."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.lints.lint_pages import examples

peft = pytest.importorskip("peft")

REFUSED = (
    # rule, which bad example, part of the message
    ("lora-targets-match-nothing", 2, "not found in the base model"),
    ("lora-target-not-a-layer", 0, "is not supported"),
    ("lora-target-string-is-a-regex", 0, "not found in the base model"),
    ("regex-in-target-list", 0, "not found in the base model"),
    ("layers-to-transform-with-text", 0, "cannot be used when `target_modules` is a str"),
    ("layers-pattern-alone", 0, "must also be specified"),
    ("lora-rank-not-positive", 0, "should be a positive integer"),
    ("lora-dropout-out-of-range", 0, "dropout probability has to be between 0 and 1"),
    ("lora-bias-rejected", 0, "not supported for DoRA"),
)
TAKEN = (
    # rule, which bad example, trained parameters of the tiny model
    ("lora-target-unused", 0, 8),  # q_proj and v_proj of two layers, two matrices each
    ("modules-to-save-missing", 0, 9),  # the same, and lm_head; nothing for wte
    ("module-adapted-and-saved", 0, 9),  # lm_head in full, and no adapter on it
    ("rank-pattern-unmatched", 0, 8),
    ("inference-mode-in-training", 0, 0),
    ("loftq-config-mismatch", 1, 8),
    ("lora-alpha-of-zero", 0, 8),
    ("modules-to-save-as-text", 0, 29),  # nearly all of the model beside the eight of adapters
)


def _config(rule: str, at: int) -> dict[str, Any]:
    bad = [each for each in examples(rule) if each.is_bad][at]
    found = json.loads(bad.files["adapter_config.json"])
    return {key: value for key, value in found.items() if key != "peft_type"}


def _adapted(config: dict[str, Any]) -> Any:
    import transformers

    tiny = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=64,
        tie_word_embeddings=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return peft.get_peft_model(transformers.LlamaForCausalLM(tiny), peft.LoraConfig(**config))


@pytest.mark.parametrize(("rule", "at", "message"), REFUSED)
def test_what_is_said_to_be_refused_is_refused(rule: str, at: int, message: str) -> None:
    with pytest.raises(Exception, match=r"(?s).") as caught:
        _adapted(_config(rule, at))
    assert message in str(caught.value)


def test_names_of_llama_are_none_of_bloom() -> None:
    import transformers

    tiny = transformers.BloomConfig(hidden_size=32, n_layer=1, n_head=4, vocab_size=64)
    config = peft.LoraConfig(**_config("lora-targets-match-nothing", 0))
    with pytest.raises(ValueError, match="not found in the base model"):
        peft.get_peft_model(transformers.BloomForCausalLM(tiny), config)


@pytest.mark.parametrize(("rule", "at", "count"), TAKEN)
def test_what_is_said_to_be_silent_does_what_is_said(rule: str, at: int, count: int) -> None:
    model = _adapted(_config(rule, at))
    assert sum(each.requires_grad for each in model.parameters()) == count


def test_alpha_of_zero_has_no_gradient() -> None:
    import torch

    model = _adapted(_config("lora-alpha-of-zero", 0))
    tokens = torch.arange(8).reshape(1, 8)
    model(input_ids=tokens, labels=tokens).loss.backward()
    trained = [each.grad for each in model.parameters() if each.requires_grad]
    assert trained
    assert all(grad is None or not grad.any() for grad in trained)


def test_an_empty_state_dict_leaves_an_adapter_without_tensors(tmp_path: Path) -> None:
    """The trainer saves one where accelerate refuses to gather (`adapter-saved-empty`)."""
    from safetensors import safe_open

    _adapted(_config("adapter-saved-empty", 0)).save_pretrained(tmp_path, state_dict={})
    with safe_open(tmp_path / "adapter_model.safetensors", "pt") as saved:
        assert list(saved.keys()) == []


def test_a_rank_under_another_name_is_not_read(tmp_path: Path) -> None:
    """PEFT reads its own file with the class of the method, and drops what that has not."""
    bad = next(each for each in examples("adapter-key-unread") if each.is_bad)
    (tmp_path / "adapter_config.json").write_text(bad.files["adapter_config.json"], "utf-8")
    with pytest.warns(UserWarning, match="lora_rank"):
        read = peft.PeftConfig.from_pretrained(str(tmp_path))
    assert read.r == peft.LoraConfig().r


_MIXTURE = {
    "hidden_size": 32,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 64,
}


def _of_experts(model: Any) -> list[str]:
    return [
        name for name, each in model.named_parameters() if each.requires_grad and "experts" in name
    ]


def test_stacked_experts_are_no_layers() -> None:
    """experts-without-adapter: its first example, and the same mended, on a small GPT-OSS."""
    import transformers

    tiny = transformers.GptOssConfig(**_MIXTURE, head_dim=8, num_local_experts=4)
    bad, good, *_ = examples("experts-without-adapter")
    for example, is_reached in ((bad, False), (good, True)):
        config = json.loads(example.files["adapter_config.json"])
        del config["peft_type"]
        base = transformers.GptOssForCausalLM(tiny)
        adapted = peft.get_peft_model(base, peft.LoraConfig(**config))
        assert bool(_of_experts(adapted)) is is_reached


def test_fused_projections_are_targets_together() -> None:
    """fused-target-in-part: its examples, on a small Qwen 3 mixture."""
    import transformers

    tiny = transformers.Qwen3MoeConfig(
        **_MIXTURE, head_dim=8, moe_intermediate_size=8, num_experts=4
    )
    bad, good = examples("fused-target-in-part")
    with pytest.raises(ValueError, match="without also targeting up_proj"):
        _mixture(tiny, bad.files)
    assert _of_experts(_mixture(tiny, good.files))


def _mixture(tiny: Any, files: Any) -> Any:
    import transformers

    config = json.loads(files["adapter_config.json"])
    del config["peft_type"]
    return peft.get_peft_model(transformers.Qwen3MoeForCausalLM(tiny), peft.LoraConfig(**config))


def test_trl_unpacks_a_list_of_one_target() -> None:
    trl = pytest.importorskip("trl")
    assert trl.ModelConfig(lora_target_modules=["q_proj"]).lora_target_modules == "q_proj"


def tiny_classifier() -> Any:
    import transformers

    tiny = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64}
    config = transformers.LlamaConfig(num_hidden_layers=1, num_labels=1, **tiny)
    return transformers.LlamaForSequenceClassification(config)


def test_a_classifier_takes_no_adapter_of_a_causal_model() -> None:
    """reward-head-not-trained: from transformers 4.52 on"""
    with pytest.raises(AttributeError, match="prepare_inputs_for_generation"):
        peft.get_peft_model(tiny_classifier(), peft.LoraConfig(task_type="CAUSAL_LM"))


@pytest.mark.parametrize(("task", "is_trained"), [(None, False), ("SEQ_CLS", True)])
def test_the_head_of_a_reward_is_trained_by_its_task(task: str | None, is_trained: bool) -> None:
    """reward-head-not-trained: silent, where no task asks for what only causal models have"""
    held = peft.get_peft_model(tiny_classifier(), peft.LoraConfig(task_type=task))
    heads = [each for name, each in held.named_parameters() if "score" in name]
    assert any(each.requires_grad for each in heads) is is_trained


def test_a_block_in_a_list_excludes_nothing() -> None:
    """exclusion-matches-nothing"""
    for kind in (True, False):
        each = next(each for each in examples("exclusion-matches-nothing") if each.is_bad is kind)
        said = json.loads(each.files["adapter_config.json"])
        config = {key: value for key, value in said.items() if key != "peft_type"}
        model = _adapted(config)
        trained = [name for name, each in model.named_parameters() if each.requires_grad]
        assert any("gate_proj" in name for name in trained) is kind


def test_targets_are_looked_up_by_kind_of_model() -> None:
    """lora-targets-left-out"""
    import transformers

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64}
    config = transformers.Phi3Config(num_hidden_layers=1, pad_token_id=0, **sizes)
    with pytest.raises(ValueError, match="Please specify `target_modules`"):
        peft.get_peft_model(transformers.Phi3ForCausalLM(config), peft.LoraConfig())
    named = peft.LoraConfig(target_modules="all-linear")
    assert peft.get_peft_model(transformers.Phi3ForCausalLM(config), named)
