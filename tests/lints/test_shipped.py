"""Configs that the makers ship: all are read, by the right engine, and nearly none has an error."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.lints.lint_asking import lint
from tests.lints.shipped import SHIPMENTS, Shipment, Told, Unreachable, configs, told, unpacked

import tunec

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
    "sana.lycoris-lokr/config.json": "no scheduler for the pipeline that encodes captions",
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


NAMED = {
    "llamafactory": (
        {"stage": "sft", "finetuning_type": "lora", "use_unsloth": True, "bf16": True},
        [f"examples/deepspeed/ds_{each}_config.json" for each in ("z0", "z2", "z3")]
        + [f"examples/deepspeed/ds_{each}_offload_config.json" for each in ("z2", "z3")],
    ),
    "axolotl": (
        {"base_model": "a/b", "sequence_len": 2048, "bf16": True},
        [f"deepspeed_configs/{each}.json" for each in ("zero1", "zero3", "zero3_bf16")]
        + [f"deepspeed_configs/zero3_bf16_cpuoffload_{each}.json" for each in ("all", "params")],
    ),
}


def _taken(folder: Path, maker: str, name: str) -> dict[str, Any]:
    said, _ = NAMED[maker]
    path = folder / f"{maker}.yaml"
    path.write_text(yaml.safe_dump({**said, "deepspeed": name}), "utf-8")
    (engine,) = tunec.lint(path).run.of("deepspeed")
    assert {place.path for place in engine.found.values()} == {"deepspeed"}
    return {key: place.value for key, place in engine.found.items()}


@pytest.mark.parametrize(
    ("maker", "name"), [(maker, name) for maker, (_, names) in NAMED.items() for name in names]
)
def test_it_is_what_the_maker_ships(maker: str, name: str, tmp_path: Path) -> None:
    (shipment,) = [each for each in SHIPMENTS if each.package == maker]
    try:
        (path,) = [
            each for each in unpacked(shipment).rglob(Path(name).name) if "/v1/" not in str(each)
        ]
    except Unreachable as fault:
        pytest.skip(str(fault))
    held = json.loads(path.read_text("utf-8"))
    for key, value in _taken(tmp_path, maker, name).items():
        there = held
        for part in key.split("."):
            # Axolotl's have DeepSpeed's other name for a key
            there = there.get(part, there.get(part.removeprefix("stage3_")))
        assert isinstance(value, dict) or there == value, key


def test_a_rule_speaks_at_the_key_that_names_it(tmp_path: Path) -> None:
    said, names = NAMED["llamafactory"]
    texts = {"train.yaml": yaml.safe_dump({**said, "deepspeed": names[2]})}
    answer = lint(tmp_path, texts, ["train.yaml"])
    (found,) = [each for each in answer.findings if each["id"] == "refused-together"]
    assert [each["path"] for each in found["labels"]] == ["use_unsloth", "deepspeed"]
    (missing,) = [each for each in answer.findings if each["id"] == "missing-file"]
    assert "taken as LLaMA-Factory ships it" in missing["message"]


def test_a_file_that_is_there_is_the_one_that_is_meant(tmp_path: Path) -> None:
    said, names = NAMED["llamafactory"]
    engine = {"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}
    texts = {
        "train.yaml": yaml.safe_dump({**said, "deepspeed": names[2]}),
        "ds.json": json.dumps(engine),
    }
    answer = lint(tmp_path, texts, ["train.yaml", "ds.json"])
    assert "refused-together" not in answer.names


def test_nothing_is_mended_inside_it(tmp_path: Path) -> None:
    said, names = NAMED["axolotl"]
    texts = {"config.yaml": yaml.safe_dump({**said, "deepspeed": names[1]})}
    lint(tmp_path, texts, ["config.yaml", "--fix"])
    assert yaml.safe_load((tmp_path / "config.yaml").read_text("utf-8"))["deepspeed"] == names[1]
