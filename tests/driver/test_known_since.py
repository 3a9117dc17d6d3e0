"""A model of today beside a transformers that does not have its family yet."""

import pytest

import tunec
from tunec.schemas.models.catalogue import card, card_names
from tunec.schemas.models.known_since import known_since

SPEC = {
    "tunec": 1,
    "model": "Qwen/Qwen3.5-9B",
    "method": "lora",
    "data": {
        "train": "train.jsonl",
        "samples": 5000,
        "sequence": 2048,
        "images": {"per_sample": 0},
    },
    "hardware": "h100-80g-x1",
}


def errors(target: str, **more: object) -> list[str]:
    found = tunec.compile({**SPEC, **more}, targets=[target]).diagnostics
    return [each.id for each in found if each.severity == "error"]


@pytest.mark.parametrize("target", ["llamafactory@0.9.5", "trl@0.19", "axolotl@0.13"])
def test_a_trainer_whose_transformers_lacks_the_family_is_refused(target):
    assert errors(target) == ["E0608"]


@pytest.mark.parametrize("target", ["trl", "axolotl", "ms-swift"])
def test_a_trainer_of_today_has_it(target):
    assert errors(target) == []


def test_a_release_that_the_trainer_takes_too_may_be_named():
    assert errors("llamafactory@0.9.5", software={"transformers": "5.2.0"}) == []


def test_the_table_names_families_that_the_newest_release_has():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    families = {card(name).config.get("model_type") for name in card_names()}
    since = {each: known_since(each) for each in families if each}
    assert (since["qwen3_5"], since["gemma3"], since["llama"]) == ("5.2", "4.50", None)
    assert {each for each, release in since.items() if release} <= {*CONFIG_MAPPING}
