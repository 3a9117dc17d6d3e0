"""The account against published measurements, which lie beside the checkout."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from workload_builders import (
    ATTENTION,
    BF16_LORA,
    LLAMA_2_7B,
    MISTRAL_7B,
    MIXED,
    full,
    layout,
    lora,
    matching,
    model,
    nf4,
)

from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.ir.slots import AttentionKernel
from tunec.schemas.models.architecture import Architecture, Module
from tunec.schemas.models.catalogue import card
from tunec.schemas.units import GIB, MIB

CORPUS = Path(__file__).parents[4] / "shared" / "corpus"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"no corpus at {CORPUS}")

FLASH = AttentionKernel("flash_attention_2")


def rows(name: str) -> Iterator[dict[str, Any]]:
    path = CORPUS / name
    if path.is_file():
        yield from map(json.loads, path.read_text().splitlines())


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
FUSED = ("none", "accelerated-peft-bnb", "baseline-peft-bnb")


def fms_rows() -> list[dict[str, Any]]:
    """fms-acceleration on one A100: torch's max_memory_allocated, no fused kernels."""
    return [
        row
        for row in rows("memory.jsonl")
        if row["id"].startswith("fmsacc")
        and row["fused_kernels"] in FUSED
        and row["parallel"]["gpus"] == 1
        and row["model"] in FMS
        and row["confidence"] == "A"
        and "mem" in row
    ]


def fms_account(row: dict[str, Any]) -> Account:
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
    if row["precision"]["quant"]:
        given["quantization"] = nf4()
        states["autocast"] = True
    if row["precision"]["kbit_prep_fp32_upcast"]:
        states["weights"] = "fp32"
    workload = lora(architecture, rank=16, dropout=0.1, targets=ATTENTION, **given)
    return account(workload, layout(micro, checkpointed=True, **states))


def test_16_fms_acceleration_peaks_are_within_3_percent() -> None:
    errors = {
        row["id"]: fms_account(row).peak_bytes / GIB / row["mem"]["value"] - 1 for row in fms_rows()
    }
    assert len(errors) == 16
    assert max(map(abs, errors.values())) < 0.03, errors
    assert mean(map(abs, errors.values())) < 0.01, errors


def zero_account(row: dict[str, Any]) -> Account:
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


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("zero-003", 0.03),
        ("zero-004", 0.04),
        ("zero-005", 0.10),
        ("zero-006", 0.06),
        ("zero-007", 0.05),
        ("zero-010", 0.03),
    ],
)
def test_zero_table_of_llama_7b(name: str, error: float) -> None:
    """Rows whose batch size their own static and logit bytes bear out.

    Left out: 001 and 002 were read before the Adam states exist, 008, 009 and 011 contradict their
    batch size.
    """
    row = next(row for row in rows("memory.jsonl") if row["id"] == name)
    found = zero_account(row).peak_bytes / 1e9
    assert found == pytest.approx(row["mem"]["value"], rel=error)


QWEN_7B = model(LLAMA_2_7B | {"vocab_size": 151936})
"""Llama's layers, but for one projection in place of three."""
SINGLE = {"autocast": True, **BF16_LORA}


def qwen_account(row: dict[str, Any]) -> Account:
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


def test_21_readings_of_qwen_7b_are_within_11_percent_of_what_is_required() -> None:
    errors = {}
    for row in rows("memory.jsonl"):
        if row["id"].startswith("qwen") and row["method"] != "qlora":
            ranks = row["parallel"]["gpus"] if "sum" in row["mem"]["per"] else 1
            measured = row["mem"]["value"] / ranks
            errors[row["id"]] = qwen_account(row).required_bytes / 1e9 / measured - 1
    assert len(errors) == 21
    assert max(map(abs, errors.values())) < 0.11, errors
    assert mean(map(abs, errors.values())) < 0.06, errors


def five(name: str) -> float:
    """The measured value of a row of the five systems."""
    found = next(row for row in rows("memory_five_systems.jsonl") if row["id"] == name)
    return float(found["measured_gb"])


def text_modules(architecture: Architecture, *names: str) -> tuple[Module, ...]:
    return tuple(
        module
        for module in architecture.modules
        if module.part == "text" and module.path.endswith(names)
    )


def between(found: Account, measured: float, unit: float) -> bool:
    """Whether a reading of nvidia-smi lies between the tensors and the budget asked for."""
    return found.peak_bytes / unit <= measured <= 1.12 * found.required_bytes / unit


def test_glm_4_9b_chat_lora() -> None:
    architecture = derive(card("glm-4-9b-chat").config)
    workload = lora(architecture, rank=8, targets=("query_key_value",), sequence=1024)
    found = account(workload, layout(checkpointed=True, **BF16_LORA))
    assert between(found, five("glm4-9b-lora"), MIB)


def glm_4v(micro: int) -> Account:
    architecture = derive(card("glm-4v-9b").config)
    adapted = matching(architecture, ["query_key_value"])
    assert {module.part for module in adapted} == {"text", "vision"}
    workload = lora(
        architecture,
        rank=8,
        adapted=adapted,
        sequence=1024,
        images=1,
        image_tokens=1602,
        vision_tokens=6401,
    )
    return account(workload, layout(micro, checkpointed=True, **BF16_LORA))


def test_glm_4v_lora_reaches_into_its_tower() -> None:
    found = glm_4v(1)
    assert found.peak_bytes / 1e9 <= five("glm4v-9b-lora") <= 1.2 * found.required_bytes / 1e9
    assert found.terms["vision activations"] > 20e9


def test_glm_4v_lora_is_refused_where_it_failed() -> None:
    assert glm_4v(1).required_bytes / GIB > five("glm4v-9b-lora-a6000-oom")
    assert glm_4v(2).required_bytes / 1e9 > five("glm4v-9b-lora-bs2-oom")


def minicpm(ranks: int, *, trained: bool) -> Account:
    architecture = derive(card("minicpm-llama3-v-2_5").config)
    given = {"sequence": 2048, "images": 1, "vision_tokens": 1024}
    embedding = tuple(m for m in architecture.modules if m.path == architecture.embedding)
    workload = (
        full(architecture, kernel="foreach", **given)
        if trained
        else lora(
            architecture,
            rank=64,
            adapted=text_modules(architecture, "q_proj", "k_proj"),
            also_train=embedding,
            **given,
        )
    )
    plan = layout(
        checkpointed=True,
        engine="deepspeed",
        world=ranks,
        stage=2,
        reduce_bucket=200_000_000,
        overlap_comm=True,
        **MIXED,
    )
    return account(workload, plan)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_minicpm_lora_zero_2(ranks: int) -> None:
    found = minicpm(ranks, trained=False)
    assert between(found, five(f"minicpmv25-lora-z2-{ranks}gpu"), GIB)


def test_what_minicpm_lora_shards() -> None:
    measured = five("minicpmv25-lora-z2-2gpu") - five("minicpmv25-lora-z2-8gpu")
    two, eight = minicpm(2, trained=False), minicpm(8, trained=False)
    found = (two.required_bytes - eight.required_bytes) / GIB
    assert found == pytest.approx(measured, rel=0.15)


def test_minicpm_full_zero_2() -> None:
    """With torch's foreach AdamW; the offset of 10 GiB is the allocator's (nvidia-smi)."""
    assert minicpm(2, trained=True).required_bytes / GIB > 80
    measured = five("minicpmv25-full-z2-4gpu") - five("minicpmv25-full-z2-8gpu")
    four, eight = minicpm(4, trained=True), minicpm(8, trained=True)
    assert (four.peak_bytes - eight.peak_bytes) / GIB == pytest.approx(measured, rel=0.05)
    assert four.peak_bytes / GIB < five("minicpmv25-full-z2-4gpu")


def visualglm(micro: int, **changes: Any) -> Account:
    architecture = derive(card("visualglm-6b").config)
    adapted = tuple(
        Module(m.path, m.kind, m.shape, m.part, m.bias, 2, ((0, 14),))
        for m in text_modules(architecture, "query_key_value", "attention.dense")
    )
    workload = lora(
        architecture,
        rank=10,
        adapted=adapted,
        sequence=320,
        images=1,
        image_tokens=32,
        vision_tokens=257,
        **changes,
    )
    half = MIXED | {"weights": "fp16", "trainable": "fp16", "gradients": "fp16"}
    plan = layout(
        micro,
        checkpointed=True,
        engine="deepspeed",
        stage=1,
        reduce_bucket=40_000_000,
        overlap_comm=True,
        contiguous_gradients=False,
        **half,
    )
    return account(workload, plan)


def test_visualglm() -> None:
    quantised = visualglm(1, quantization=nf4(double=False))
    assert between(quantised, five("visualglm-qlora-bs1"), 1e9)
    assert between(visualglm(1), five("visualglm-lora-bs1"), 1e9)
    assert visualglm(1).required_bytes > 16 * GIB, five("visualglm-lora-16gb-oom")
    twenty = visualglm(20).required_bytes / 1e9
    assert twenty == pytest.approx(five("visualglm-lora-bs20"), rel=0.2)
