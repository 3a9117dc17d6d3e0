"""Configs that the makers ship: all are read, and nearly none has an error."""

from collections.abc import Mapping
from functools import cache

import pytest
from tests.lints.shipped import SHIPMENTS, Shipment, Told, Unreachable, configs, told, unpacked

REFUSED = {
    "zero1_torch_compile.json": "deepspeed compile/config.py refuses disable and backend",
    "zero2_torch_compile.json": "the same",
    "mistral4/fft-text.yml": "FSDP2 not compatible with adamw_bnb_8bit",
    "mistral4/fft-vision.yml": "the same",
    "expert_parallel/qwen3_30ba3b_ep_fft_4gpu.yaml": "warmup_steps is 0.1, not a whole number",
    "expert_parallel/qwen3_30ba3b_ep_fsdp_fft_4gpu.yaml": "the same",
    "expert_parallel/qwen3_30ba3b_ep_lora_4gpu.yaml": "the same",
    "llama-3/diffusion/sft-1b.yaml": "save_strategy best requires metric_for_best_model",
    "mistral-medium-3_5/qlora-text.yml": "output_dir is nothing, not text",
    "mistral-medium-3_5/qlora-vision.yml": "the same",
    "bria.lycoris-lokr/config.json": "no family of that name in 4.10.1",
    "hidream.peft-controlnet-lora/config.json": "a comma before the closing bracket",
    "kandinsky5-image-6b-i2i.lycoris-lokr/config.json": "the family is kandinsky5_image",
    "pixart.peft-controlnet-lora/config.json": "the family is pixart",
}
"""Configs that the program which ships them refuses itself, by the end of the path, with its words:
each was given to that release."""
REAL = {
    "v4-flash-nvfp4-lora.yaml": "a constant rate has no warm-up",
    "falcon-h1-1b-qlora-cp.yaml": "context_parapllel_size",
    "mistral-qlora-fsdp.yml": "Mixtral has no MistralDecoderLayer",
    "gemma3/gemma-3-1b-qlora.yml": "unfrozen_parameters fits no weight beside an adapter",
    "gemma3/gemma-3-270m-qlora.yml": "the same",
    "gemma3/gemma-3-4b-qlora.yml": "the same",
    "ds_z3_fp8_config.json": "DeepSpeed reads comms_logger and csv_monitor, at the top of the file",
    "llama3_fp8_deepspeed_sft.yaml": "names that file",
    "single_gpu.yaml": "eight processes and nothing that starts them",
}
"""Configs that are taken, and do otherwise than they say; looked up in the source of the reader."""
_FEWEST = {"axolotl": 230, "simpletuner": 175, "llamafactory": 60, "trl": 7, "torchtune": 150}


@cache
def _told(shipment: Shipment) -> tuple[Told, ...]:
    try:
        paths = configs(unpacked(shipment), shipment.globs)
    except Unreachable as fault:
        pytest.skip(str(fault))
    assert len(paths) >= _FEWEST[shipment.package]
    return tuple(told(paths, shipment.readers))


@pytest.mark.parametrize("shipment", SHIPMENTS, ids=lambda shipment: shipment.package)
def test_shipped_configs_are_read_and_their_errors_are_real(shipment: Shipment) -> None:
    every = _told(shipment)
    known = [each for each in every if each.is_known or each.errors]
    assert len(known) >= 0.98 * len(every)
    wrong = [each for each in every if each.errors and not _is_among(each, REFUSED | REAL)]
    assert [(str(each.path), each.errors) for each in wrong] == []


def test_nearly_none_has_an_error() -> None:
    """98 % of what the programs take of their own configs; and what they refuse is told."""
    every = [each for shipment in SHIPMENTS for each in _told(shipment)]
    assert len(every) >= 400
    refused = [each for each in every if _is_among(each, REFUSED)]
    assert len(refused) == len(REFUSED)
    taken = [each for each in every if not _is_among(each, REFUSED)]
    assert sum(bool(each.errors) for each in taken) <= 0.02 * len(taken)
    assert [str(each.path) for each in refused if not each.errors] == []


def _is_among(each: Told, ends: Mapping[str, str]) -> bool:
    return any(str(each.path).endswith(f"/{end}") for end in ends)
