"""Published measurements with the workload and the layout that each was taken of.

`measured.jsonl` holds one measurement a line, with repository, commit and path. `metric`:
`allocated` (torch's max_memory_allocated), `reserved` (max_memory_reserved) or `driver`
(nvidia-smi or a README's figure); `driver` beside `allocated` is nvidia-smi's of the same run;
`oom`: the run ended for want of memory. `reading_split` says which readings the bound on readings
is fitted to (every second one of each source) and which ones judge it; nothing is fitted to
allocated bytes.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from workload_builders import (
    ALL_LINEAR,
    ATTENTION,
    BF16_LORA,
    LLAMA_2_7B,
    LLAMA_32_3B,
    MISTRAL_7B,
    MIXED,
    full,
    layout,
    lora,
    model,
    nf4,
)

from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.ir.slots import AttentionKernel
from tunec.schemas.models.architecture import Architecture

Row = dict[str, Any]
FLASH: Final = AttentionKernel("flash_attention_2")
DATA: Final = Path(__file__).with_name("measured.jsonl")


@dataclass(frozen=True)
class Measurement:
    """One published run."""

    row: Row

    @property
    def id(self) -> str:
        """As the corpus names it."""
        return str(self.row["id"])

    @property
    def allocated(self) -> int | None:
        """Bytes of tensors at the peak."""
        return self.row["bytes"] if self.row["metric"] == "allocated" else None

    @property
    def reading(self) -> int | None:
        """Bytes that the allocator or the driver had taken at most."""
        if self.row["metric"] in ("reserved", "driver"):
            return int(self.row["bytes"])
        return self.row.get("driver")

    @property
    def is_fitted(self) -> bool:
        """Whether the bound on readings may look at it."""
        return self.row.get("reading_split") == "fit"

    @property
    def ran_out(self) -> bool:
        """Whether the run ended for want of memory."""
        return bool(self.row["metric"] == "oom")

    @property
    def account(self) -> Account:
        """What the compiler says of it."""
        return BUILDERS[self.row["builder"]](self.row)


def measurements() -> list[Measurement]:
    """All of them, in the order of the file."""
    return [Measurement(json.loads(line)) for line in DATA.read_text().splitlines()]


POWERLM_3B = {
    "model_type": "granite",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 40,
    "num_attention_heads": 36,
    "num_key_value_heads": 36,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}

# requirements.txt and requirements_granite.txt beside the tables. The rows of santacoder are left
# out: two of its four need 8.3 and 18.7 bytes a logit, which its code does not explain.
FMS: dict[str, tuple[Architecture, str]] = {
    "mistralai/Mistral-7B-v0.1": (model(MISTRAL_7B), "4.48.1"),
    "ibm/PowerLM-3b": (model(POWERLM_3B), "4.45.0"),
}


def fms_account(row: Row) -> Account:
    """fms-acceleration on one A100, without its fused kernels."""
    architecture, version = FMS[row["model"]]
    given: dict[str, Any] = {
        "sequence": row["seq_len"],
        "kernel": "foreach",
        "attention": FLASH,
        "versions": (("transformers", version),),
    }
    micro = row["micro_batch"]
    if row["method"] == "full":
        return account(full(architecture, **given), layout(micro, checkpointed=True))
    states: dict[str, Any] = dict(BF16_LORA)
    if row["quant"]:
        given["quantization"] = nf4()
        states["autocast"] = True
    if row.get("kbit_prep"):
        states["weights"] = "fp32"
    workload = lora(architecture, rank=16, dropout=0.1, targets=ATTENTION, **given)
    return account(workload, layout(micro, checkpointed=True, **states))


def zero_account(row: Row) -> Account:
    """LLaMA-7B on eight A800, with the bucket sizes of transformers' `auto`."""
    moved = row["parallel"]["offload"] or ""
    workload = full(
        model(LLAMA_2_7B), sequence=row["seq_len"], versions=(("transformers", "4.48.1"),)
    )
    plan = layout(
        row["micro_batch"],
        checkpointed=row["grad_ckpt"],
        accumulation=row["gas"],
        engine="deepspeed",
        world=8,
        stage=int(row["parallel"]["strategy"][4]),
        offload_optimizer="cpu" if "optimizer" in moved else "none",
        offload_param="cpu" if "param" in moved else "none",
        reduce_bucket=4096**2,
        prefetch_bucket=int(0.9 * 4096**2),
        persistence_threshold=40960,
        **MIXED,
    )
    return account(workload, plan)


QWEN_7B = model(LLAMA_2_7B | {"vocab_size": 151936})
"""Llama's layers, but for one projection in place of three."""
SINGLE = {"autocast": True, **BF16_LORA}


def qwen_account(row: Row) -> Account:
    """What finetune/*.sh of QwenLM/Qwen start."""
    given: dict[str, Any] = {
        "sequence": row["seq_len"],
        "attention": FLASH,
        "versions": (("transformers", "4.45.0"),),
    }
    sharded = {"engine": "deepspeed", "reduce_bucket": 4096**2, **MIXED}
    ranks = row["parallel"]["gpus"]
    if row["method"] == "full":
        plan = layout(checkpointed=True, accumulation=8, world=ranks, stage=3, **sharded)
        return account(full(QWEN_7B, **given), plan)
    ends = "embeddings" in row["peft"]["targets"]
    outer = (QWEN_7B.embedding, QWEN_7B.head)
    beside = tuple(module for module in QWEN_7B.modules if module.path in outer)
    workload = lora(QWEN_7B, rank=64, dropout=0.05, also_train=beside if ends else (), **given)
    states: dict[str, Any] = SINGLE
    if ranks > 1:
        states = {"world": ranks, "stage": 2, "overlap_comm": True, **sharded}
    return account(workload, layout(checkpointed=True, accumulation=8, **states))


def swift_account(row: Row) -> Account:
    """Qwen-7B-Chat by ms-swift with torch 2.1: texts of 3234 tokens on average, cut to length."""
    given: dict[str, Any] = {
        "sequence": row["seq_len"],
        "attention": AttentionKernel(row["attn"]),
        "kernel": "foreach",
        "packing": False,
        "versions": (("transformers", "4.36.0"),),
    }
    micro, checkpointed = row["micro_batch"], row["grad_ckpt"]
    if row["method"] == "full":
        return account(full(QWEN_7B, **given), layout(micro, checkpointed=checkpointed))
    everything = row["peft"]["targets"] == "ALL"
    targets = ALL_LINEAR if everything else ("q_proj", "k_proj", "v_proj")
    workload = lora(QWEN_7B, rank=row["peft"]["r"], dropout=0.05, targets=targets, **given)
    return account(workload, layout(micro, checkpointed=checkpointed, **SINGLE))


def peft_account(row: Row) -> Account:
    """peft's own comparison of methods on one L40S, with its newest releases."""
    targets = tuple(row["peft"]["targets"].split(","))
    workload = lora(
        model(LLAMA_32_3B),
        rank=row["peft"]["r"],
        targets=targets,
        sequence=row["seq_len"],
        packing=False,
        kernel="foreach",
    )
    workload = replace(workload, adapter=replace(workload.adapter, dora=row["dora"]))
    return account(workload, layout(row["micro_batch"], **BF16_LORA))


BUILDERS: Final[dict[str, Callable[[Row], Account]]] = {
    "fms": fms_account,
    "zero": zero_account,
    "qwen": qwen_account,
    "swift": swift_account,
    "peft": peft_account,
}
