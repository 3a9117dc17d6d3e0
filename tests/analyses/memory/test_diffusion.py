"""Denoisers against traces of the real diffusers models."""

from typing import Any

import pytest
from workload_builders import full, layout, lora, model

from tunec.compiler.analyses.memory.account import Account, account
from tunec.schemas.models.architecture import Architecture

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
peft = pytest.importorskip("peft")

from tests.recording.traces import recorded  # noqa: E402
from traced_peaks import Peaks, peaks_of  # noqa: E402

SD3: dict[str, Any] = {
    "_class_name": "SD3Transformer2DModel",
    "sample_size": 128,
    "num_layers": 6,
    "attention_head_dim": 64,
    "num_attention_heads": 24,
    "caption_projection_dim": 1536,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 2048,
    "pos_embed_max_size": 192,
    "in_channels": 16,
    "out_channels": 16,
    "patch_size": 2,
}
SD35: dict[str, Any] = SD3 | {
    "qk_norm": "rms_norm",
    "dual_attention_layers": [0, 1, 2],
    "pos_embed_max_size": 384,
}
FLUX: dict[str, Any] = {
    "_class_name": "FluxTransformer2DModel",
    "num_layers": 3,
    "num_single_layers": 6,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "in_channels": 64,
    "patch_size": 1,
    "guidance_embeds": True,
}
SDXL: dict[str, Any] = {
    "_class_name": "UNet2DConditionModel",
    "sample_size": 128,
    "in_channels": 4,
    "out_channels": 4,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "block_out_channels": [320, 640, 1280],
    "layers_per_block": 2,
    "transformer_layers_per_block": [1, 2, 4],
    "attention_head_dim": [5, 10, 20],
    "cross_attention_dim": 2048,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
    "use_linear_projection": True,
}
SD15: dict[str, Any] = SDXL | {
    "sample_size": 64,
    "down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
    "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3,
    "block_out_channels": [320, 640, 1280, 1280],
    "transformer_layers_per_block": 1,
    "attention_head_dim": 8,
    "cross_attention_dim": 768,
    "addition_embed_type": None,
    "use_linear_projection": False,
}
MODELS = {
    "sd3": (SD3, 1024),
    "sd35": (SD35, 1024),
    "flux": (FLUX, 1024),
    "sdxl": (SDXL, 1024),
    "sd15": (SD15, 512),
}
TARGETS = ("to_q", "to_k", "to_v", "to_out.0")


def build(config: dict[str, Any], *, lora_rank: int, checkpointed: bool) -> Any:
    kept = {k: v for k, v in config.items() if k != "_class_name"}
    with torch.device("meta"):
        built = getattr(diffusers, config["_class_name"])(**kept).to(torch.bfloat16)
    if lora_rank:
        built.requires_grad_(requires_grad=False)
        built.add_adapter(peft.LoraConfig(r=lora_rank, target_modules=list(TARGETS)))
    built.train()
    if checkpointed:
        built.enable_gradient_checkpointing()
    return built


def zeros(*shape: int) -> Any:
    return torch.zeros(*shape, dtype=torch.bfloat16, device="meta")


def inputs(config: dict[str, Any], side: int) -> dict[str, Any]:
    latent = side // 8
    if config["_class_name"] == "UNet2DConditionModel":
        more = {"text_embeds": zeros(1, 1280), "time_ids": zeros(1, 6)}
        return {
            "sample": zeros(1, 4, latent, latent),
            "timestep": zeros(1),
            "encoder_hidden_states": zeros(1, 77, config["cross_attention_dim"]),
            "added_cond_kwargs": more if config["addition_embed_type"] else None,
        }
    given = {"timestep": zeros(1), "pooled_projections": zeros(1, config["pooled_projection_dim"])}
    if config["_class_name"] == "SD3Transformer2DModel":
        text = zeros(1, 333, 4096)
        return given | {
            "hidden_states": zeros(1, 16, latent, latent),
            "encoder_hidden_states": text,
        }
    tokens = (latent // 2) ** 2
    return given | {
        "hidden_states": zeros(1, tokens, 64),
        "encoder_hidden_states": zeros(1, 512, 4096),
        "guidance": zeros(1),
        "img_ids": torch.zeros(tokens, 3, device="meta"),
        "txt_ids": torch.zeros(512, 3, device="meta"),
    }


@recorded
def traced(name: str, *, lora_rank: int, checkpointed: bool) -> Peaks:
    config, side = MODELS[name]
    built = build(config, lora_rank=lora_rank, checkpointed=checkpointed)
    given = inputs(config, side)
    return peaks_of(built, lambda: built(**given, return_dict=False)[0].float().pow(2).mean())


def accounted(name: str, *, lora_rank: int, checkpointed: bool) -> Account:
    config, side = MODELS[name]
    architecture = model(config)
    data = {"sequence": 0, "images": 1, "image_width": side, "image_height": side}
    if not lora_rank:
        return account(full(architecture, name="sgd", **data), layout(checkpointed=checkpointed))
    workload = lora(
        architecture, rank=lora_rank, name="sgd", adapted=_adapted(architecture), **data
    )
    return account(workload, layout(checkpointed=checkpointed))


def _adapted(architecture: Architecture) -> tuple[Any, ...]:
    return tuple(m for m in architecture.modules if m.path.endswith(TARGETS))


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("lora_rank", [0, 16], ids=["full", "lora"])
@pytest.mark.parametrize("name", MODELS)
def test_peak_is_within_8_percent_of_the_trace(
    name: str, lora_rank: int, checkpointed: bool
) -> None:
    peaks = traced(name, lora_rank=lora_rank, checkpointed=checkpointed)
    found = accounted(name, lora_rank=lora_rank, checkpointed=checkpointed)
    backward = [phase for phase in found.phases if "backward" in phase]
    most = max(sum(found.phases[phase].values()) for phase in backward)
    assert most == pytest.approx(peaks.backward, rel=0.08)
