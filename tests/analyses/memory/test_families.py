"""The layers of each family against traces of its real model, where nothing hides a layer's error.

Four layers, a tiny vocabulary and no optimizer: the largest terms are what layers keep and work in.
"""

from typing import Any

import pytest
from workload_builders import (
    ALL_LINEAR,
    ATTENTION,
    BF16_LORA,
    LLAMA_2_7B,
    LLAMA_3_8B,
    full,
    layout,
    lora,
    model,
)

from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.ir.slots import AttentionKernel
from tunec.schemas.frozen import replace

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from tests.recording.traces import recorded  # noqa: E402
from traced_peaks import Peaks, peaks_of  # noqa: E402

from tunec.compiler.tracing.live.kernels import register_attention  # noqa: E402

SMALL: dict[str, Any] = {"num_hidden_layers": 4, "vocab_size": 1024}
TOKENS = 2048


def config(family: str, hidden: int, ffn: int, heads: int, kv: int = 0, **more: Any) -> Any:
    return {
        "model_type": family,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_attention_heads": heads,
        "num_key_value_heads": kv or heads,
        **SMALL,
        **more,
    }


CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA_3_8B | SMALL,
    "llama without grouped queries": LLAMA_2_7B | SMALL,
    "qwen3": config("qwen3", 2560, 9728, 32, 8, head_dim=128, tie_word_embeddings=True),
    "gemma": config("gemma", 2048, 16384, 8, 1, head_dim=256),
    "gemma2": config("gemma2", 2304, 9216, 8, 4, head_dim=256),
    "gemma3": config("gemma3_text", 2560, 10240, 8, 4, head_dim=256),
    "glm": config("glm", 4096, 13696, 32, 2, head_dim=128, pad_token_id=0),
    "glm4": config("glm4", 4096, 13696, 32, 2, head_dim=128, pad_token_id=0),
    "phi3": config("phi3", 3072, 8192, 32, pad_token_id=0),
    "granite": config("granite", 2560, 10240, 40),
    "olmo2": config("olmo2", 4096, 11008, 32, pad_token_id=0),
    "cohere": config("cohere", 4096, 11008, 32),
    "phi": config("phi", 2560, 10240, 32),
    "starcoder2": config("starcoder2", 3072, 12288, 24, 2),
    "gpt2": {
        "model_type": "gpt2",
        "n_embd": 1600,
        "n_layer": 4,
        "n_head": 25,
        "vocab_size": 1024,
        "n_positions": 2048,
        "resid_pdrop": 0,
        "embd_pdrop": 0,
        "attn_pdrop": 0,
    },
    "gpt_neox": config("gpt_neox", 4096, 16384, 32),
    "opt": {
        "model_type": "opt",
        "hidden_size": 2560,
        "ffn_dim": 10240,
        "num_hidden_layers": 4,
        "num_attention_heads": 32,
        "vocab_size": 1024,
        "word_embed_proj_dim": 2560,
        "dropout": 0,
    },
    "mixtral": config("mixtral", 2048, 4096, 16, 4, num_local_experts=8, num_experts_per_tok=2),
    "qwen3_moe": config(
        "qwen3_moe",
        2048,
        6144,
        32,
        4,
        head_dim=128,
        moe_intermediate_size=768,
        num_experts=32,
        num_experts_per_tok=8,
        decoder_sparse_step=1,
        mlp_only_layers=[],
    ),
    "deepseek_v3": config(
        "deepseek_v3",
        2048,
        6144,
        16,
        moe_intermediate_size=1024,
        n_routed_experts=16,
        num_experts_per_tok=4,
        n_group=1,
        topk_group=1,
        n_shared_experts=1,
        first_k_dense_replace=1,
        q_lora_rank=768,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
}
LORA_TARGETS = {"llama": ALL_LINEAR, "qwen3": ("q_proj", "v_proj"), "gemma2": ATTENTION} | {
    "phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
    "mixtral": ATTENTION,
    "qwen3_moe": ATTENTION,
    "deepseek_v3": ("q_a_proj", "q_b_proj", "kv_b_proj", "o_proj"),
}


def attention(name: str) -> str:
    """Only eager attention caps its scores."""
    return "eager" if name == "gemma2" else register_attention(padded=False)


def kernel(name: str) -> AttentionKernel:
    return AttentionKernel("eager" if name == "gemma2" else "sdpa")


@recorded
def traced(
    name: str,
    *,
    checkpointed: bool,
    targets: tuple[str, ...] = (),
    wide: bool = True,
    **adapter: Any,
) -> Peaks:
    settings = transformers.AutoConfig.for_model(**CONFIGS[name])
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(
            settings, dtype=torch.bfloat16, attn_implementation=attention(name)
        )
        if targets:
            chosen = peft.LoraConfig(r=16, target_modules=list(targets), **adapter)
            built = peft.get_peft_model(built, chosen)
            built = built if wide else built.to(torch.bfloat16)
    built.train()
    if checkpointed:
        built.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if targets:
            built.enable_input_require_grads()
    tokens = torch.zeros(1, TOKENS, dtype=torch.long, device="meta")
    return peaks_of(built, lambda: built(input_ids=tokens, labels=tokens, use_cache=False).loss)


def backward_peak(found: Account) -> int:
    phases = (name for name in found.phases if "backward" in name)
    return max(sum(found.phases[name].values()) for name in phases)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("name", CONFIGS)
def test_full_training_is_within_4_percent(name: str, checkpointed: bool) -> None:
    peaks = traced(name, checkpointed=checkpointed)
    workload = full(model(CONFIGS[name]), name="sgd", sequence=TOKENS, attention=kernel(name))
    found = account(workload, layout(checkpointed=checkpointed))
    assert backward_peak(found) == pytest.approx(peaks.backward, rel=0.04)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("name", LORA_TARGETS)
def test_lora_is_within_5_percent(name: str, checkpointed: bool) -> None:
    targets = LORA_TARGETS[name]
    peaks = traced(name, checkpointed=checkpointed, targets=targets)
    given = {"targets": targets, "name": "sgd", "sequence": TOKENS, "attention": kernel(name)}
    found = account(
        lora(model(CONFIGS[name]), **given), layout(checkpointed=checkpointed, **BF16_LORA)
    )
    assert backward_peak(found) == pytest.approx(peaks.backward, rel=0.05)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("targets", [ALL_LINEAR, ATTENTION, ("q_proj", "v_proj")])
def test_adapters_in_the_models_own_dtype_are_within_5_percent(
    targets: tuple[str, ...], checkpointed: bool
) -> None:
    """What DeepSpeed makes of adapters when bf16 is enabled."""
    peaks = traced("llama", checkpointed=checkpointed, targets=targets, wide=False)
    workload = lora(model(CONFIGS["llama"]), targets=targets, name="sgd", sequence=TOKENS)
    found = account(workload, layout(checkpointed=checkpointed))
    assert backward_peak(found) == pytest.approx(peaks.backward, rel=0.05)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("dropout", [0, 0.1])
@pytest.mark.parametrize("targets", [ALL_LINEAR, ("q_proj", "v_proj")])
def test_dora_is_within_8_percent(
    targets: tuple[str, ...], dropout: float, checkpointed: bool
) -> None:
    peaks = traced(
        "llama", checkpointed=checkpointed, targets=targets, use_dora=True, lora_dropout=dropout
    )
    given = {"targets": targets, "dropout": dropout, "name": "sgd", "sequence": TOKENS}
    workload = lora(model(CONFIGS["llama"]), **given)
    workload = replace(workload, adapter=replace(workload.adapter, dora=True))
    found = account(workload, layout(checkpointed=checkpointed, **BF16_LORA))
    assert found.peak_bytes == pytest.approx(max(peaks.forward, peaks.backward), rel=0.08)


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
def test_a_whole_embedding_beside_adapters_is_within_5_percent(checkpointed: bool) -> None:
    """What `modules_to_save` and new tokens in a resized vocabulary ask for."""
    name = "llama"
    peaks = traced(
        name, checkpointed=checkpointed, targets=ATTENTION, modules_to_save=["embed_tokens"]
    )
    architecture = model(CONFIGS[name])
    embedding = tuple(m for m in architecture.modules if m.path == architecture.embedding)
    workload = lora(
        architecture, targets=ATTENTION, also_train=embedding, name="sgd", sequence=TOKENS
    )
    found = account(workload, layout(checkpointed=checkpointed, **BF16_LORA))
    assert backward_peak(found) == pytest.approx(peaks.backward, rel=0.05)


def test_scaling_by_the_roots_of_ranks_takes_nothing() -> None:
    plain = traced("llama", checkpointed=True, targets=ATTENTION)
    scaled = traced("llama", checkpointed=True, targets=ATTENTION, use_rslora=True)
    assert (plain.static, plain.backward) == (scaled.static, scaled.backward)
