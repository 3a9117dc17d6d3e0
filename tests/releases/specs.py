"""Everyday runs: methods, objectives, engines, precisions, offload, packing, evaluation."""

from collections.abc import Mapping
from typing import Final

_BASE: Final = "tunec: 1\nmodel: {model}\nhardware: {hardware}\nmethod: {method}\ndata: {data}\n"
_TEXTS: Final = "{train: trl-lib/tldr, samples: 20000, sequence: 2048}"


def spec(
    hardware: str,
    method: str,
    *more: str,
    model: str = "qwen2.5-7b",
    data: str = _TEXTS,
) -> str:
    """The text of a spec; `more` are further lines."""
    start = _BASE.format(model=model, hardware=hardware, method=method, data=data)
    return start + "".join(f"{line}\n" for line in more)


_PAIRS: Final = "{train: trl-lib/ultrafeedback_binarized, samples: 20000, sequence: 1024}"
_NVME: Final = (
    "pin: {zero.stage: 3, zero.offload_optimizer: nvme, zero.offload_param: nvme, "
    "zero.nvme_path: /nvme}"
)
_REWARDED: Final = "objective: {grpo: {rewards: [think_format_reward], completion: 512, beta: %s}}"

SPECS: Final[Mapping[str, str]] = {
    "full on one device": spec("a100-80g-x1", "full", model="llama-3.2-1b"),
    "full by DDP": spec("a100-80g-x8", "full", "engine: ddp", model="llama-3.2-1b"),
    "full by ZeRO 1": spec("a100-80g-x8", "full", "pin: {zero.stage: 1}", model="llama-3.2-3b"),
    "full by ZeRO 2": spec("a100-80g-x8", "full", "pin: {zero.stage: 2}", model="llama-3.2-3b"),
    "full by ZeRO 3": spec("a100-80g-x8", "full", "pin: {zero.stage: 3}"),
    "full on the host": spec("a100-80g-x8", "full", "pin: {zero.offload_optimizer: cpu}"),
    "full on NVMe": spec("dgx-a100-80g", "full", _NVME),
    "full by FSDP": spec("a100-80g-x8", "full", "engine: fsdp"),
    "full in fp32": spec("a100-80g-x8", "full", "precision: {compute: fp32}", model="llama-3.2-1b"),
    "full in fp16": spec("v100-32g-x8", "full", model="llama-3.2-1b"),
    "lora": spec("a100-80g-x1", "lora"),
    "lora by ZeRO 2": spec("a100-80g-x8", "lora", "pin: {zero.stage: 2}"),
    "lora by FSDP": spec("a100-80g-x8", "lora", "engine: fsdp"),
    "lora, packed": spec(
        *("a100-80g-x1", "lora"),
        data="{train: trl-lib/tldr, samples: 20000, sequence: 2048, packing: true}",
    ),
    "lora, evaluated": spec(
        *("a100-80g-x1", "lora"),
        data="{train: trl-lib/tldr, evaluation: held-out, samples: 20000, sequence: 2048}",
    ),
    "lora of some modules": spec(
        "a100-80g-x1", "{lora: {rank: 8, targets: [q_proj, v_proj], rslora: true}}"
    ),
    "dora": spec("a100-80g-x1", "{lora: {dora: true}}"),
    "lora on two nodes": spec("dgx-superpod-a100", "lora"),
    "qlora in bf16": spec("rtx-4090-x1", "qlora"),
    "qlora in fp16": spec("t4-x1", "qlora", model="llama-3.2-1b"),
    "qlora by DDP": spec("rtx-4090-x2", "qlora", "engine: ddp"),
    "int8 lora": spec("a100-80g-x1", "int8_lora"),
    "dpo": spec("a100-80g-x8", "lora", "objective: dpo", data=_PAIRS),
    "dpo by qlora": spec(
        "rtx-4090-x1", "qlora", "objective: dpo", model="llama-3.2-3b", data=_PAIRS
    ),
    "dpo of a whole model": spec(
        "a100-80g-x8", "full", "objective: dpo", model="llama-3.2-3b", data=_PAIRS
    ),
    "grpo": spec("a100-80g-x8", "lora", _REWARDED % 0.0),
    "grpo by qlora": spec("a100-80g-x1", "qlora", _REWARDED % 0.0, model="llama-3.2-3b"),
    "grpo with a reference": spec("a100-80g-x8", "full", _REWARDED % 0.04, model="llama-3.2-3b"),
}
