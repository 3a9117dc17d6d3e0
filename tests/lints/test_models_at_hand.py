"""What lint knows of the memory of a model: from the config at hand, from the catalogue, or not."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.lints.lint_asking import lint

LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
UNKNOWN = "cannot tell: this model is not known"
TOO_MUCH = (
    "this needs 3193.6 GiB of 23.7 GiB on each NVIDIA GeForce RTX 3090 with 3200 x 2048 tokens"
)
HARDWARE = ("--hardware", "rtx-3090-x2")


def axolotl(model: str, micro: int = 3200) -> str:
    """A file that no device has memory for."""
    return f"""\
base_model: {model}
load_in_4bit: true
adapter: qlora
lora_r: 16
lora_alpha: 32
lora_target_linear: true
sequence_len: 2048
micro_batch_size: {micro}
gradient_accumulation_steps: 1
optimizer: adamw_torch
learning_rate: 0.0002
bf16: true
gradient_checkpointing: true
datasets:
  - path: data.jsonl
    type: alpaca
output_dir: out
"""


def told(
    folder: Path, files: Mapping[str, str], named: tuple[str, ...] = (), *more: str
) -> list[dict[str, Any]]:
    """What lint says of memory."""
    asked = [*(named or (next(iter(files)),)), *(more or HARDWARE)]
    found = lint(folder, files, asked).findings
    return [each for each in found if each["id"] == "device-memory-exceeded"]


def config(**changes: Any) -> str:
    return json.dumps({**LLAMA, **changes})


@pytest.mark.parametrize(
    ("model", "at"),
    [
        ("./weights", "configs/weights/config.json"),
        ("weights", "weights/config.json"),
        ("acme/own", "configs/acme/own/config.json"),
        ("acme/own", "configs/config.json"),
        ("meta-llama/Meta-Llama-3-8B", None),
        ("/models/Meta-Llama-3-8B", None),
    ],
)
def test_a_batch_of_thousands_does_not_pass(tmp_path: Path, model: str, at: str | None) -> None:
    files = {"configs/axolotl.yaml": axolotl(model), **({at: config()} if at else {})}
    (found,) = told(tmp_path, files)
    assert (found["severity"], found["message"]) == ("warning", TOO_MUCH)


def test_the_config_in_a_folder_goes_before_the_name_of_the_folder(tmp_path: Path) -> None:
    small = config(num_hidden_layers=2)
    files = {"a.yaml": axolotl("./Meta-Llama-3-8B"), "Meta-Llama-3-8B/config.json": small}
    (found,) = told(tmp_path, files)
    assert found["message"] != TOO_MUCH
    assert found["message"].startswith("this needs ")


@pytest.mark.parametrize(
    "beside",
    [
        None,
        "not json",
        "[1]",
        json.dumps({"model_type": "lora", "model_family": "sdxl"}),
        config(model_type="nobody-knows"),
        config(hidden_size="wide"),
        config(_name_or_path="acme/another"),
    ],
)
def test_a_model_of_which_nothing_is_known_is_told(tmp_path: Path, beside: str | None) -> None:
    files = {"axolotl.yaml": axolotl("acme/own"), **({"config.json": beside} if beside else {})}
    (found,) = told(tmp_path, files)
    assert (found["severity"], found["message"]) == ("note", UNKNOWN)
    assert found["labels"][0]["path"] == "base_model"
    assert found["help"] == "`tunec card acme/own` makes its card"


@pytest.mark.parametrize("model", ["./weights", "$MODEL", "/data/own"])
def test_what_is_no_name_has_no_card_by_name(tmp_path: Path, model: str) -> None:
    (found,) = told(tmp_path, {"axolotl.yaml": axolotl(model)})
    assert found["help"].startswith("`tunec card CONFIG` makes a card of its config.json")


def test_one_note_for_all_files_names_the_others(tmp_path: Path) -> None:
    files = {f"{name}.yaml": axolotl(f"acme/{name}") for name in "abcdef"}
    (found,) = told(tmp_path, files, tuple(files))
    assert found["labels"][0]["file"] == "a.yaml"
    assert found["notes"][-1] == "nor are those of b.yaml, c.yaml, d.yaml and 2 more"


def test_without_hardware_memory_is_no_question(tmp_path: Path) -> None:
    assert told(tmp_path, {"axolotl.yaml": axolotl("acme/own")}, (), "--from", "axolotl") == []


def test_the_note_can_be_allowed(tmp_path: Path) -> None:
    allowed = "# tunec: allow(device-memory-exceeded): it is our own\n" + axolotl("acme/own")
    assert told(tmp_path, {"axolotl.yaml": allowed}) == []


def test_a_file_that_only_serves_needs_no_memory_for_training(tmp_path: Path) -> None:
    served = "model_name_or_path: Qwen/Qwen3-8B\ntemplate: qwen3\ninfer_backend: huggingface\n"
    assert told(tmp_path, {"chat.yaml": served}, ("chat.yaml", "--from", "llamafactory")) == []


def test_what_fits_with_less_than_a_plan_leaves_is_near_the_limit(tmp_path: Path) -> None:
    text = axolotl("meta-llama/Meta-Llama-3-8B", micro=16)
    (found,) = told(tmp_path, {"axolotl.yaml": text})
    assert found["severity"] == "warning"
    assert found["message"].startswith("near the limit: ")
    assert "beside tensors a plan counts" in found["notes"][1]
    half = text.replace("micro_batch_size: 16", "micro_batch_size: 8")
    assert told(tmp_path, {"axolotl.yaml": half}) == []


def test_reading_files_makes_no_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take a minute: who wants one asks for it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tunec.compiler.derived_cards.make", None)
    unknown = config(architectures=["GptOssForCausalLM"], model_type="gpt_oss")
    files = {"axolotl.yaml": axolotl("acme/own"), "config.json": unknown}
    (found,) = told(tmp_path, files)
    assert found["message"] == UNKNOWN
