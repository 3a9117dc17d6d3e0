"""Unsloth: what its command cannot be told, what it loads, and what its files say when read."""

from typing import Any

import pytest
import yaml
from packaging.version import Version
from tests.tables import rows, tuples

from tunec.compiler.driver import Compiled, compile_spec
from tunec.compiler.frontend.load import load_text
from tunec.compiler.read import found_plain, read
from tunec.targets.registry import TARGETS
from tunec.targets.unsloth.names import copy_of
from tunec.targets.unsloth.packages import RELEASES, installed_releases, ranges
from tunec.targets.unsloth.target import TARGET

BASE = {
    "tunec": 1,
    "model": "llama-3.2-1b",
    "method": "lora",
    "data": {"train": "train.jsonl", "samples": 1000, "sequence": 512},
    "hardware": "a100-80g-x1",
}
SEEING = {
    "model": "qwen2-vl-7b",
    "data": {
        "train": "train.jsonl",
        "samples": 1000,
        "sequence": 512,
        "images": {"per_sample": 1, "width": 448, "height": 448},
    },
}


def compiled(changes: dict[str, Any], release: str = "2026.10.9") -> Compiled:
    text = yaml.safe_dump({**BASE, **changes})
    return compile_spec(load_text(text, targets=TARGETS.names()), [(TARGET, Version(release))])


def errors(result: Compiled) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in result.diagnostics:
        if each.severity == "error":
            assert each.help or each.notes, each.message
            found.setdefault(each.id, []).append(" ".join((each.message, *each.notes)))
    return found


def test_what_it_is_told_it_is_told():
    assert errors(compiled({})) == {}
    assert errors(compiled(SEEING)) == {}


@pytest.mark.parametrize(*rows(__file__, "test_what_its_command_cannot_be_told_is_refused"))
def test_what_its_command_cannot_be_told_is_refused(changes, code, text):
    result = compiled(changes)
    found = errors(result)
    assert any(text in each for each in found.get(code, ())), found
    assert not result.artifacts.get("unsloth")


def test_its_module_is_started_with_its_file():
    """`python -m unsloth_cli.__main__` is the console script: a name without a dot is a file."""
    text = yaml.safe_dump(BASE)
    asked = [(TARGET, Version("2026.10.9")), TARGETS.resolve("launch")]
    result = compile_spec(load_text(text, targets=TARGETS.names()), asked)
    (script,) = (each for each in result.artifacts["launch"] if each.name == "launch.sh")
    words = " ".join(script.text.split())
    assert "python -m unsloth_cli.__main__ train --config unsloth/unsloth.yaml" in words.replace(
        "\\ ", ""
    )


@pytest.mark.parametrize("optimizer", ["adamw", "lion"])
def test_it_has_one_optimizer(optimizer):
    assert errors(compiled({"train": {"optimizer": optimizer}}))


def test_earlier_releases_are_read_and_never_written():
    (told,) = errors(compiled({}, "2026.7.6"))["E0905"]
    assert "earlier ones are only read" in told
    (told,) = errors(compiled(SEEING, "2026.9.14"))["E0905"]
    assert "as one of text" in told


@pytest.mark.parametrize(
    ("name", "release", "in_four_bits", "copy"),
    [
        ("meta-llama/Llama-3.1-8B", "2026.10.9", True, "unsloth/llama-3.1-8b-unsloth-bnb-4bit"),
        ("meta-llama/Llama-3.1-8B", "2026.10.9", False, "unsloth/llama-3.1-8b"),
        ("Qwen/Qwen3-32B", "2026.9.8", True, "unsloth/qwen3-32b-bnb-4bit"),
        ("Qwen/Qwen2-VL-72B", "2026.9.14", False, "unsloth/qwen2-vl-72b"),
        ("Qwen/Qwen2-VL-72B", "2026.10.9", False, None),
        ("./model", "2026.10.9", True, None),
        ("mine/model", "2026.10.9", True, None),
    ],
)
def test_names_that_it_knows_lead_elsewhere(name, release, in_four_bits, copy):
    assert copy_of(name, Version(release), in_four_bits=in_four_bits) == copy


@pytest.mark.parametrize("method", ["lora", "qlora"])
def test_a_plan_says_which_repository_is_loaded(method):
    found = [each for each in compiled({"method": method}).diagnostics if "copy" in each.id]
    (told,) = found
    assert told.severity == "warning"
    assert ("may keep layers in 16 bits" in str(told.notes)) is (method == "qlora")


@pytest.mark.parametrize(*rows(__file__, "test_a_plan_says_what_its_account_does_not_follow"))
def test_a_plan_says_what_its_account_does_not_follow(changes, texts):
    (told,) = [each for each in compiled(changes).diagnostics if each.id.startswith("account-of")]
    assert told.severity == "note"
    assert len(told.notes) == texts


def slots(document: dict[str, Any], release: str = "2026.10.9") -> dict[str, Any]:
    found = read(TARGET, {"unsloth.yaml": found_plain(document)}, Version(release))
    return {each.slot: each.value for each in sorted(found, key=lambda each: each.rank)}


@pytest.mark.parametrize(*rows(__file__, "test_files_are_read"))
def test_files_are_read(document, expected):
    said = slots(document)
    assert {slot: said.get(slot) for slot in expected} == tuples(expected)


@pytest.mark.parametrize("release", RELEASES)
def test_dora_came_later(release):
    asked = slots({"lora": {"use_dora": True}}, release)
    assert asked["adapter.dora"] is (release != "2026.3.18")


def test_a_release_older_than_those_that_were_read_brings_nothing_that_is_known() -> None:
    assert installed_releases(Version("2024.8")) == ranges(Version("2024.8")) == {}
    assert installed_releases(Version("2026.9.14"))["transformers"] == "5.5.0"


@pytest.mark.parametrize(
    ("model", "trainable"), [("gemma-4-e2b", 24_158_208), ("gemma-4-e4b", 34_881_536)]
)
def test_layers_beside_attention_and_feed_forward_are_left_out_beside_images(model, trainable):
    """unsloth_zoo 2026.10.9 `get_peft_regex` on the model itself adapts as many parameters so.

    With its tower, whose layers are called `linear`, it would be more.
    """
    plan = compiled({"model": model, "data": SEEING["data"]})
    assert errors(plan) == {}
    assert plan.planned.plan.adapter.trainable_parameters == trainable
    told = yaml.safe_load(plan.artifacts["unsloth"][0].text)["lora"]
    parts = ("vision_layers", "language_layers", "attention_modules", "mlp_modules")
    assert [told[f"finetune_{each}"] for each in parts] == [False, True, True, True]


def test_layers_that_are_named_are_kept_and_told():
    asked = {"lora": {"targets": ["q_proj", "per_layer_projection"]}}
    found = errors(compiled({"model": "gemma-4-e2b", "method": asked, "data": SEEING["data"]}))
    assert ["beside images it adapts" in each for each in found["E0905"]] == [True]
    texts = {**BASE["data"], "images": {"per_sample": 0}}
    alone = compiled({"model": "gemma-4-e2b", "data": texts}).planned.plan.adapter.targets
    assert "per_layer_projection" in alone
