"""What others report of their hosts' RAM, which nothing is fitted to, and the host account.

`host_published.jsonl`: `grown` is what the system's used memory grew by, `ram` what a node has,
with whether the run got through.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from published_models import CONFIGS, FLAN_T5_XXL, MT0_XXL, T5_11B
from workload_builders import (
    ALL_LINEAR,
    FP32,
    FSDP_1,
    LLAMA_2_7B,
    LLAMA_3_8B,
    MIXED,
    QWEN_25_7B,
    full,
    layout,
    lora,
    model,
    nf4,
)

from tunec.compiler.analyses.memory.account import account
from tunec.compiler.analyses.memory.terms.host import HostAccount
from tunec.schemas.frozen import replace

ROWS = [
    json.loads(line)
    for line in Path(__file__).with_name("host_published.jsonl").read_text().splitlines()
]
_13B = {"hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40}
_70B = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80}
_33B = {"hidden_size": 6656, "intermediate_size": 17920, "num_hidden_layers": 60}
_32B = {"hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64}
MODELS = {
    "llama-7b": LLAMA_2_7B,
    "llama-13b": LLAMA_2_7B | _13B | {"num_attention_heads": 40, "num_key_value_heads": 40},
    "llama-70b": LLAMA_2_7B | _70B | {"num_attention_heads": 64, "num_key_value_heads": 8},
    "llama-33b": LLAMA_2_7B | _33B | {"num_attention_heads": 52, "num_key_value_heads": 52},
    "llama-3-70b": LLAMA_3_8B | _70B | {"num_attention_heads": 64},
    "mt0-xxl": MT0_XXL,
    "flan-t5-xxl": FLAN_T5_XXL,
    "t5-11b": T5_11B,
    "gpt2-xl": CONFIGS["gpt2-xl"],
    "llama-65b": CONFIGS["llama-65b"],
    "qwen2.5-32b": QWEN_25_7B | _32B | {"num_attention_heads": 40, "num_key_value_heads": 8},
}
MOVED = {"both": ("cpu", "cpu"), "optimizer": ("cpu", "none"), "none": ("none", "none")}


def host_of(row: dict[str, Any]) -> HostAccount:
    architecture = model(MODELS[row["model"]])
    among = {"world": row["ranks"], "nodes": row.get("nodes", 1), "checkpointed": True}
    if row["engine"] == "deepspeed":
        optimizer, parameters = MOVED[row["offload"]]
        moved = {"offload_optimizer": optimizer, "offload_param": parameters}
        states = FP32 if row["method"].endswith("fp32") else MIXED
        plan = layout(engine="deepspeed", stage=row["stage"], **among, **moved, **states)
        return account(full(architecture), plan).host
    shards = replace(
        FSDP_1,
        offload_params=row["offload"] == "param",
        efficient_loading=row.get("efficient", True),
    )
    states = FP32 if row["method"].endswith("fp32") else {}
    plan = layout(engine="fsdp", fsdp=shards, **among, **states)
    if row["method"].startswith("full"):
        return account(full(architecture), plan).host
    packed = {"quantization": replace(nf4(), storage="bf16")} if row["method"] == "qlora" else {}
    targets = (*ALL_LINEAR, "q", "v")
    return account(lora(architecture, rank=64, targets=targets, **packed), plan).host


@pytest.mark.parametrize("row", [r for r in ROWS if "ran" in r], ids=lambda row: row["id"])
def test_hosts_that_ran_out_are_refused_and_others_are_not(row: dict[str, Any]) -> None:
    assert (host_of(row).peak_bytes < row["ram"]) == row["ran"]


@pytest.mark.parametrize("row", [r for r in ROWS if "grown" in r], ids=lambda row: row["id"])
def test_what_was_measured_is_held_and_little_more(row: dict[str, Any]) -> None:
    """DeepSpeed's own factor for buffers, 1.5, is what lies between."""
    assert row["grown"]["bytes"] <= host_of(row).peak_bytes <= 1.9 * row["grown"]["bytes"]
