"""Configs that the makers ship: all are read, and nearly none has an error."""

import pytest
from shipped import SHIPMENTS, Shipment, Told, Unreachable, configs, told, unpacked

REAL = {
    "zero1_torch_compile.json": "deepspeed compile/config.py refuses disable and backend",
    "zero2_torch_compile.json": "the same",
    "v4-flash-nvfp4-lora.yaml": "a constant rate has no warm-up",
    "falcon-h1-1b-qlora-cp.yaml": "context_parapllel_size",
    "mistral-qlora-fsdp.yml": "Mixtral has no MistralDecoderLayer",
    "fft-text.yml": "8-bit optimizer with FSDP2",
    "fft-vision.yml": "the same",
    "bria.lycoris-lokr/config.json": "no family of that name in 4.10.1",
    "hidream.peft-controlnet-lora/config.json": "a comma before the closing bracket",
    "kandinsky5-image-6b-i2i.lycoris-lokr/config.json": "the family is kandinsky5_image",
    "pixart.peft-controlnet-lora/config.json": "the family is pixart",
    "ds_z3_fp8_config.json": "DeepSpeed reads comms_logger and csv_monitor, at the top of the file",
    "llama3_fp8_deepspeed_sft.yaml": "names that file",
    "single_gpu.yaml": "eight processes and nothing that starts them",
}
"""Errors that were looked up in the source of the reader and are real, by the end of the path."""
_FEWEST = {"axolotl": 250, "simpletuner": 150, "llamafactory": 60, "trl": 7}


def _told(shipment: Shipment) -> list[Told]:
    try:
        paths = configs(unpacked(shipment), shipment.globs)
    except Unreachable as fault:
        pytest.skip(str(fault))
    assert len(paths) >= _FEWEST[shipment.package]
    return list(told(paths, shipment.readers))


@pytest.mark.parametrize("shipment", SHIPMENTS, ids=lambda shipment: shipment.package)
def test_shipped_configs_are_read_and_their_errors_are_real(shipment: Shipment) -> None:
    every = _told(shipment)
    known = [each for each in every if each.is_known or each.errors]
    assert len(known) >= 0.98 * len(every)
    wrong = [each for each in every if each.errors and not _is_real(each)]
    assert [(str(each.path), each.errors) for each in wrong] == []


def test_nearly_none_has_an_error() -> None:
    every = [each for shipment in SHIPMENTS for each in _told(shipment)]
    assert len(every) >= 400
    assert sum(bool(each.errors) for each in every) <= 0.03 * len(every)


def _is_real(each: Told) -> bool:
    return any(str(each.path).endswith(f"/{end}") for end in REAL)
