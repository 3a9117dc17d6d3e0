"""What is taken for a DeepSpeed file that a trainer ships, where it is named and not there."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.lints.lint_asking import lint
from tests.lints.shipped import SHIPMENTS, Unreachable, unpacked

import tunec

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
