"""Ranges of releases as packaging reads them, and models beside a transformers without them."""

import pytest
from packaging.specifiers import SpecifierSet

import tunec
from tunec.compiler.releases import Releases
from tunec.schemas.models.catalogue import card, card_names
from tunec.schemas.models.known_since import known_since, whole_heads_since

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


@pytest.mark.parametrize("target", ["llamafactory@0.9.3", "trl@0.19", "axolotl@0.13"])
def test_a_trainer_whose_transformers_lacks_the_family_is_refused(target):
    assert errors(target) == ["E0608"]


@pytest.mark.parametrize("target", ["trl", "axolotl", "ms-swift", "llamafactory"])
def test_a_trainer_of_today_has_it(target):
    assert errors(target) == []


def test_a_release_that_the_trainer_takes_too_may_be_named():
    assert errors("llamafactory@0.9.3", software={"transformers": "5.2.0"}) == []


@pytest.mark.parametrize(("release", "found"), [("5.3.0", []), ("5.4.0", ["E0608"])])
def test_heads_that_share_the_width_unevenly_are_refused_since_configs_are_validated(
    release, found
):
    kanana = {"model": "kanana-nano-2.1b", "data": {"train": "t.jsonl", "sequence": 1024}}
    assert errors("trl", **kanana, software={"transformers": release}) == found


def test_whole_heads_are_demanded_where_the_newest_release_demands_them():
    from huggingface_hub.errors import StrictDataclassError
    from transformers import CONFIG_MAPPING

    def takes(family: str) -> bool:
        try:
            CONFIG_MAPPING[family](hidden_size=96, num_attention_heads=9)
        except StrictDataclassError as fault:
            return not ("hidden size" in str(fault) and "attention heads" in str(fault))
        return True

    families = {card(name).config.get("model_type") for name in card_names()} & {*CONFIG_MAPPING}
    refusing = {family for family in families if not takes(family)}
    assert refusing == {each for each in families if whole_heads_since(each)}


def test_the_table_names_families_that_the_newest_release_has():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    families = {card(name).config.get("model_type") for name in card_names()}
    since = {each: known_since(each) for each in families if each}
    assert (since["qwen3_5"], since["gemma3"], since["llama"]) == ("5.2", "4.50", None)
    assert {each for each, release in since.items() if release} <= {*CONFIG_MAPPING}


RANGES = (
    ">=4.40,<5.25",
    "==2.4",
    ">=0.14, <0.20",
    "<=0.19.1",
    "!=1.5",
    ">=4.40,!=4.45.*",
    "",
    "<5",
)
VERSIONS = (
    *("4.39.9", "4.40", "4.40.0", "4.45.1", "5.23.0", "5.25", "5.25.0rc1", "5.0.dev0", "4.99"),
    *("2.4", "2.4.0", "0.14", "0.14.0rc1", "0.19.1", "0.19.1.post1", "0.20.0a1", "1.5", "1.5.0"),
)


@pytest.mark.parametrize("text", RANGES)
def test_a_range_holds_the_same_releases(text):
    ours, theirs = Releases(text), SpecifierSet(text)
    assert str(ours) == text
    for version in VERSIONS:
        assert ours.contains(version) == theirs.contains(version, prereleases=True), version


def test_what_is_no_bound_is_refused():
    with pytest.raises(ValueError, match="is not a version bound"):
        Releases("about 4.40").contains("4.40")
