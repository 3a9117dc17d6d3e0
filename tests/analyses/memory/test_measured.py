"""The account and its margin against published measurements that lie in this folder."""

import json
from statistics import mean, median

import pytest
from fit_margin import ahead, fitted, judged
from measurements import UNUSABLE, Measurement, measurements, quantile, unfolded

from tunec.compiler.analyses.memory.margin import READING
from tunec.schemas.hardware.catalogue import device
from tunec.schemas.units import GIB

ALL = measurements()
DEVICES = {
    "A100-80GB": "a100-sxm4-80g",
    "A800-80GB": "a100-sxm4-80g",
    "A100-40GB": "a100-sxm4-40g",
    "T4-16GB": "t4",
    "L4-24GB": "l4",
    "TitanRTX-24GB": "titan-rtx",
    "A10G-24GB": "a10g",
    "RTX3090-24GB": "rtx-3090",
    "RTX4090-24GB": "rtx-4090",
    "A5000-24GB": "rtx-a5000",
    "RTX6000Ada-48GB": "rtx-6000-ada",
    "H100-80GB": "h100-sxm",
    "H200-141GB": "h200",
    "8GB": "rtx-2080",
    "12GB": "rtx-3060",
    "16GB": "v100-sxm2-16g",
    "24GB": "rtx-4090",
    "32GB": "v100-sxm2-32g",
    "40GB": "a100-sxm4-40g",
    "48GB": "rtx-a6000",
    "80GB": "a100-sxm4-80g",
}

WIDE = "micro-batch and attention code of the table are unknown; without checkpointing"
COPIES = (
    "deepspeed of early 2023, whose world of one copies what it fetches to the device and then "
    "gathers it into a second tensor: 3.8 GiB of BLOOM's embedding; today's does not"
)
WIDE_OF_THE_MARK = {
    "zero-005": WIDE,
    "peft-009": COPIES,
}
"""Allocated bytes that the account misses by more than 8 %."""
NEARLY = "93.5 % of the device is what stays: the margin of 4 % on it and NCCL's are too much"
SHORTER_TEXTS = "its texts are shorter than the 128 tokens at which they are cut"
REFUSED_THOUGH_THEY_RAN = {
    "fms-llama3-8b-full-foak-fast-kernels-2x4": NEARLY,
    "fms-llama3-8b-full-foak-fast-kernels-liger-2x4": NEARLY,
    "fms-llama3-8b-full-foak-fast-kernels-liger-2x8": NEARLY,
    "unsloth-hf-8b-12gb": "by 0.03 GiB; the longest sequence that fitted into 12 GB",
    "t5-large-ddp-16": SHORTER_TEXTS,
    "t5-large-ddp-fp16-20": SHORTER_TEXTS,
    "t5-large-zero2-40": SHORTER_TEXTS,
    "t5-large-zero2-offload-50": SHORTER_TEXTS,
    "hf-zero-t5-3b-zero2-offload-20": SHORTER_TEXTS,
    "hf-ulysses-qwen3-4b-8k-alone": "96.5 % of the device is in tensors",
    **dict.fromkeys(
        (
            f"fms-{commit}-llama-2-70b-hf-lora-{bitsandbytes}-2x4"
            for commit in ("b6c1455", "4e81c64", "97fc3c1")
            for bitsandbytes in ("baseline-peft-bnb", "accelerated-peft-bnb")
        ),
        "nvidia-smi showed 78.4 to 79.3 of 79.1 GiB; seven of its 13 runs failed",
    ),
}
"""Runs that ended well on devices that they would not fit by the account."""
RUN_THOUGH_THEY_FAILED = {
    "fitcheck-071": "by 0.4 %: 13.0 of 14.6 GiB are tensors, and no hole was left for 1.2 GiB",
    "llamafactory-6752": "by 1 GiB; neither its files nor where it failed are given",
    "llamafactory-4133": "where it failed is not given; nine devices are named for eight ranks",
    "trl-notebook-grpo-qwen3-14b": "by 0.2 GiB; how long its longest prompt is is not given",
    "hf-4bit-7b-int8-1024": "which layers its adapters are beside, and their rank, are not given",
    "hf-4bit-13b-nf4-1024-recomputed": "the same; 0.6 GiB less of weights let it run",
}
"""Runs that are taken to have failed for want of memory, on devices that they would fit."""
ABOVE_THE_BOUND = {
    "msswift-qwen-1_8b-chat-lora-2048": "9.2 GiB of reserved bytes in no tensor",
    "fsdp-qlora-7b-lora-10x2048-offload": "9.6 GiB of reserved bytes in no tensor; its micro batch "
    "was raised until the device was full",
    "axolotl-code-llama-7b-qlora": "prose of a README; what was evaluated beside is not given",
}
"""Readings above what the bound says, of those that judge it."""


def errors(builder: str, metric: str) -> dict[str, float]:
    """By how much the account differs from each measurement, as a share of it."""
    found = {}
    for one in ALL:
        if one.row["builder"] == builder and one.row["metric"] == metric:
            known = one.account
            size = known.peak_bytes if metric == "allocated" else known.required_bytes
            found[one.id] = size / one.row["bytes"] - 1
    return found


def test_21_fms_acceleration_peaks_are_within_1_percent() -> None:
    """One device, transformers' own modules."""
    found = errors("fms", "allocated")
    plain = {name: error for name, error in found.items() if name in PLAIN_FMS}
    assert len(plain) == 21
    assert max(map(abs, plain.values())) < 0.01, plain
    assert mean(map(abs, plain.values())) < 0.002, plain


PLAIN_FMS = {one.id for one in ALL if one.row["builder"] == "fms" and "kernels" not in one.row}


def test_24_peaks_under_fsdp_1_are_within_3_percent() -> None:
    """Adapters too, whose frozen base makes each layer's input wait for the end of the pass."""
    found = errors("fms", "allocated")
    sharded = {
        one.id
        for one in ALL
        if one.row["parallel"]["gpus"] > 1 and "foak" not in one.row.get("kernels", "foak")
    }
    found = {name: found[name] for name in sharded if name in found}
    assert len(found) == 24
    assert max(map(abs, found.values())) < 0.03, found
    assert mean(map(abs, found.values())) < 0.011, found


def test_120_peaks_by_earlier_releases_are_within_3_percent() -> None:
    """Runs of fms-acceleration by transformers 4.43.3, 4.44.2 and 4.45.2."""
    found = errors("fms-before", "allocated")
    assert len(found) == 120
    assert max(map(abs, found.values())) < 0.03, found
    assert mean(map(abs, found.values())) < 0.006, found


def test_fused_kernels_never_take_more() -> None:
    found = errors("fms", "allocated")
    fused = {one.id for one in ALL if "foak" in one.row.get("kernels", "")}
    assert all(-0.001 < found[name] < 0.1 for name in fused & found.keys()), found


def test_9_peaks_of_litgpt_are_within_5_percent() -> None:
    found = errors("litgpt", "allocated")
    assert len(found) == 9
    assert max(map(abs, found.values())) < 0.05, found


def test_5_peaks_of_preference_adapters_and_experts_are_within_5_percent() -> None:
    """DPO by DeepSpeed's own Adam, LoRA of BLOOM in fp32, a DeepSeek-V3 of two layers."""
    found = {name: error for name, error in allocated().items() if name in OTHER_KINDS}
    assert found.keys() == OTHER_KINDS
    assert max(map(abs, found.values())) < 0.05, found


OTHER_KINDS = {
    "ds-chat-dpo-opt-350m",
    "peft-008",
    *(f"liger-deepseek-v3-{tokens}" for tokens in (2048, 4096, 8192)),
}


ZERO = {
    "zero-003": 0.03,
    "zero-004": 0.04,
    "zero-005": 0.10,
    "zero-006": 0.06,
    "zero-007": 0.05,
    "zero-010": 0.03,
}


def test_61_peaks_on_a_t4_are_within_3_percent() -> None:
    """LoRA and 4-bit bases in fp16, by eager attention and by torch's: a loop of their own."""
    found = errors("stated", "allocated")
    found = {name: error for name, error in found.items() if name.startswith("fitcheck")}
    assert len(found) == 61
    assert max(map(abs, found.values())) < 0.03, found
    assert mean(map(abs, found.values())) < 0.011, found


def test_zero_table_of_llama_7b() -> None:
    """Rows whose batch size their own static and logit bytes bear out.

    Left out: 001 and 002 were read before the Adam states exist, 008, 009 and 011 contradict their
    batch size.
    """
    found = errors("zero", "allocated")
    assert found.keys() == ZERO.keys()
    assert all(abs(found[name]) < most for name, most in ZERO.items()), found


def allocated() -> dict[str, float]:
    """The error of every row that gives allocated bytes."""
    return {
        one.id: one.account.peak_bytes / one.allocated - 1
        for one in ALL
        if one.allocated is not None
    }


@pytest.mark.parametrize("confidence", ["A", "AB"])
def test_allocated_peaks(confidence: str) -> None:
    """The median within 3 %, 95 of 100 within 8 %, and the others by name."""
    chosen = {one.id for one in ALL if one.row["confidence"] in confidence}
    found = {name: error for name, error in allocated().items() if name in chosen}
    sizes = [abs(error) for error in found.values()]
    assert len(sizes) >= 40
    assert median(sizes) < 0.03
    assert quantile(sizes, 0.95) < 0.08
    wide = {name for name, error in found.items() if abs(error) > 0.08}
    assert wide == WIDE_OF_THE_MARK.keys() & chosen


def test_steps_that_failed_held_and_asked_for_what_the_account_says() -> None:
    """Of ZeRO-2, LLaMA's by torch's loop and MiniCPM-V's by foreach: messages that give both."""
    failed = [one for one in ALL if "held" in one.row]
    assert len(failed) == 2
    for one in failed:
        assert one.account.peak.name == "optimizer step"
        needed = one.row["held"] + one.row["asked"]
        assert one.account.peak_bytes == pytest.approx(needed, rel=0.002)


def test_51_readings_of_qwen_are_within_20_percent_of_what_is_required() -> None:
    """The widest are those of 1.8 GB models with 150,000 tokens, and of ZeRO-3."""
    found = errors("qwen", "driver")
    assert len(found) == 51
    assert max(map(abs, found.values())) < 0.2, found
    assert mean(map(abs, found.values())) < 0.06, found


def test_the_bound_on_readings_is_what_its_fit_says() -> None:
    assert fitted() == READING
    readings = [one for one in ALL if one.reading is not None]
    fitted_to = [one for one in readings if one.is_fitted]
    assert f"Fitted to {len(fitted_to)} readings" in _documentation()


def _documentation() -> str:
    from pathlib import Path

    from tunec.compiler.analyses.memory import margin

    return Path(margin.__file__).read_text()


def test_no_allocator_reserved_less_than_the_account_says() -> None:
    """Tensors lie in what the allocator reserved: an upper bound on the account, 4 % for its own.

    Liger's kernels for norms and gated products were found by it.
    """
    reserved = [one for one in ALL if one.row["metric"] == "reserved"]
    assert len(reserved) > 60
    over = {one.id: one.account.peak_bytes / one.row["bytes"] for one in reserved}
    assert {name for name, share in over.items() if share > 1.04} == set(), over


def test_readings_that_were_not_fitted_lie_below_the_bound() -> None:
    found = judged(READING)
    assert len(found) > 120
    assert {name for name, by in found.items() if by > 0} == set(ABOVE_THE_BOUND)
    assert len(ABOVE_THE_BOUND) <= 0.02 * len(found)


ON_KNOWN_DEVICES = [one for one in ALL if one.row.get("gpu") in DEVICES]


def needs_more(one: Measurement) -> bool:
    """Whether a run needs more than its device has, by the account."""
    return one.account.required_bytes > device(DEVICES[one.row["gpu"]]).memory


def test_every_run_that_failed_for_want_of_memory_is_refused() -> None:
    failed = [one for one in ON_KNOWN_DEVICES if one.ran_out and one.judges_verdict]
    assert len(failed) > 200
    assert {one.id for one in failed if not needs_more(one)} == set(RUN_THOUGH_THEY_FAILED)
    assert len(RUN_THOUGH_THEY_FAILED) <= 0.05 * len(failed)


def test_who_ran_is_let_run() -> None:
    ran = [one for one in ON_KNOWN_DEVICES if not one.ran_out]
    assert len(ran) > 500
    assert {one.id for one in ran if needs_more(one)} == set(REFUSED_THOUGH_THEY_RAN)
    assert len(REFUSED_THOUGH_THEY_RAN) <= 0.05 * len(ran)


def test_no_row_that_is_used_is_said_to_be_unusable() -> None:
    groups = json.loads(UNUSABLE.read_text("utf-8"))
    named = {name for group in groups for name in unfolded(group["rows"])}
    assert named & {one.id for one in ALL} == set()
    assert len(named) == sum(group["number"] for group in groups)
    assert all(group["why"] for group in groups)


def test_readings_are_more_than_is_required() -> None:
    """The driver shows what the allocator keeps, the margin is what it needs."""
    for one in ALL:
        known = one.account
        assert known.peak_bytes < known.required_bytes <= known.reading_bytes
        share = max(*READING.values(), ahead(one))
        assert known.reading_bytes < known.peak_bytes * (1 + share) + 2 * GIB
