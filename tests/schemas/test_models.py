"""The catalogue of models: every card loads, is sourced, and derives to what was published."""

import json
import re
import subprocess
import sys

import pytest

from tunec.compiler.analyses.architecture import derive
from tunec.schemas import entries
from tunec.schemas.caches import clear
from tunec.schemas.models.catalogue import (
    UnknownName,
    card,
    card_names,
    repository,
    repository_in_loaded_form,
    repository_unpacked,
)
from tunec.schemas.models.refusals import (
    INSTEAD,
    UNPLANNED,
    how_stored,
    what_instead,
    why_unplanned,
)

CHANGED = ("phi-", "smollm2-")
PEFT_TABLE = "TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING"


def repositories(found):
    """The names on the Hub that a card knows."""
    return [each for each in (found.repo, *found.aliases, *found.siblings) if "/" in each]


def test_there_are_cards_enough_and_for_the_five_systems():
    every = {each.lower() for name in card_names() for each in repositories(card(name))}
    assert len(every) >= 200
    five = {"visualglm-6b", "minicpm-v-2_6", "llama-3.2-3b", "glm-4v-9b", "sdxl-base-1.0"}
    assert five <= set(card_names())
    assert list(card_names()) == sorted(card_names())


@pytest.mark.parametrize("name", card_names())
def test_a_card_is_named_after_its_file_and_says_where_its_facts_are_from(name):
    found = card(name)
    assert found.name == name
    assert found.config_source
    for key in ("published_parameters", "lora_targets", "trainer_extras", "simpletuner_family"):
        assert bool(getattr(found, key)) == (key in found.sources), key
    assert ("stored_dtype" in found.model_fields_set) == ("stored_dtype" in found.sources)
    assert bool(found.processor) == bool(found.processor_source)
    assert all(refusal.source for refusal in found.precision_refused.values())


@pytest.mark.parametrize("name", card_names())
def test_a_card_derives_to_the_published_count(name):
    found = card(name)
    architecture = derive(found.config, found.processor)
    if found.published_parameters is not None:
        assert architecture.parameters == found.published_parameters
    assert sum(architecture.by_part.values()) == architecture.parameters
    for component in found.components:
        assert bool(component.config) != bool(component.model)
        if component.model:
            assert component.model in card_names()
            continue
        assert set(derive(component.config).by_part) == {component.part}


@pytest.mark.parametrize("name", card_names())
def test_a_card_assumes_no_width(name):
    assumed = derive(card(name).config).assumed
    if name in ("llava-1.5-7b", "llava-v1.6-mistral-7b"):
        # its text config leaves Llama's and Mistral's own widths out, as the published file does
        assert "text_config.hidden_size" in assumed
        return
    widths = ("hidden_size", "num_layers", "num_hidden_layers", "vocab_size", "block_out_channels")
    assert not [key for key in assumed if key.rpartition(".")[2] in widths]


@pytest.mark.parametrize("name", card_names())
def test_no_number_of_a_config_is_a_text(name):
    """YAML takes `1e-05` for a text, and `1.0e-05` for a number."""
    found = card(name)
    configs = [found.config, *(each.config or {} for each in found.siblings.values())]
    assert not re.search(r'": "[-+]?[0-9.]+e[-+]?[0-9]+"', json.dumps(configs))


def test_most_counts_are_published():
    published = [name for name in card_names() if card(name).published_parameters]
    assert len(published) >= 55


@pytest.mark.parametrize(
    "alias",
    [
        "meta-llama/Llama-3.1-8B",
        "META-LLAMA/llama-3.1-8b-instruct",
        "Meta-Llama-3.1-8B",
        "llama-3.1-8B",
    ],
)
def test_an_alias_resolves_in_any_case(alias):
    assert card(alias).name == "llama-3.1-8b"


def test_other_weights_say_where_their_config_differs():
    for name in card_names():
        for each in card(name).siblings.values():
            assert bool(each.config or each.stored_dtype) == bool(each.source)
    assert card("Qwen/Qwen2.5-7B").config["max_position_embeddings"] == 131072
    assert card("qwen/QWEN2.5-7B-instruct").config["max_position_embeddings"] == 32768
    assert card("google/gemma-2-9b").stored_dtype == "fp32"
    assert card("google/gemma-2-9b-it").stored_dtype == "bf16"


def test_every_name_of_a_card_leads_to_it():
    for name in card_names():
        found = card(name)
        assert repository(name.upper()) == found.repo
        for each in (found.repo, *found.aliases, *found.siblings):
            assert card(each.lower()).name == name
            assert repository(each) in (each, found.repo)


def test_a_short_name_of_weights_stands_for_their_repository():
    assert repository("Qwen2.5-0.5B-Instruct") == "Qwen/Qwen2.5-0.5B-Instruct"
    assert repository("flux-dev") == "black-forest-labs/FLUX.1-dev"


def test_an_unknown_name_raises_with_the_known_ones():
    with pytest.raises(UnknownName) as raised:
        card("llama-9")
    assert isinstance(raised.value, KeyError)
    assert raised.value.known == card_names()
    assert str(raised.value) == "no model is called 'llama-9'"


def test_only_the_card_that_is_asked_for_is_read(monkeypatch):
    read = []
    original = entries._content
    monkeypatch.setattr(entries, "_content", lambda file: read.append(file.stem) or original(file))
    clear()
    assert card("qwen/qwen3-8b") is card("QWEN3-8b")
    card_names()
    assert read == ["qwen3-8b"]
    card("Qwen/Qwen2.5-0.5B-Instruct")
    assert read == ["qwen3-8b", *card_names(), "qwen2.5-0.5b"]


def test_lora_targets_of_pefts_table_are_in_it():
    constants = pytest.importorskip("peft.utils.constants")
    table = getattr(constants, PEFT_TABLE)
    checked = 0
    for name in card_names():
        found = card(name)
        source = found.sources.get("lora_targets", "")
        if PEFT_TABLE in source:
            family = source.partition("['")[2].partition("']")[0]
            assert family == found.config["model_type"]
            assert list(found.lora_targets) == table[family]
            checked += 1
    assert checked > 20


def test_nothing_heavy_is_imported():
    program = (
        "import sys, json; from tunec.compiler.analyses.architecture import derive;"
        "from tunec.schemas.models.catalogue import card; derive(card('glm-4v-9b').config);"
        "print(json.dumps([m for m in ('torch', 'transformers', 'diffusers', 'numpy', 'peft')"
        " if m in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []


def test_models_that_are_refused_by_name_have_no_card():
    held = [each.lower() for name in card_names() for each in repositories(card(name))]
    for start in UNPLANNED:
        assert why_unplanned(f"{start.upper()}x")
        assert not [each for each in held if each.startswith(start.lower())]
    assert why_unplanned("Qwen/Qwen3-8B") is None


def test_what_can_be_done_instead_names_models_that_can_be_planned():
    for start in INSTEAD:
        assert why_unplanned(f"{start}x"), start
        told = what_instead(f"{start}x") or ""
        for name in re.findall(r"`model: ([\w.-]+/[\w.-]+)`", told):
            if "path/to" not in name:
                assert card(name), name
    assert what_instead("Qwen/Qwen3-8B") is None
    assert "--trust-remote-code" in (what_instead("baichuan-inc/Baichuan2-7B-Chat") or "")
    assert "genmo/mochi-1-preview" in (what_instead("genmo/mochi-1-preview") or "")


@pytest.mark.parametrize(
    ("name", "stored", "whole"),
    [
        ("unsloth/llama-3-8b-bnb-4bit", "4 bits by bitsandbytes", "unsloth/llama-3-8b"),
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "4 bits by bitsandbytes", "Qwen/Qwen3-14B"),
        ("Qwen/Qwen2.5-32B-Instruct-GPTQ-Int4", "4 bits by GPTQ", "Qwen/Qwen2.5-32B-Instruct"),
        ("TheBloke/Mistral-7B-v0.1-AWQ", "4 bits by AWQ", "mistralai/Mistral-7B-v0.1"),
        ("acme/own-4bit", "4 bits for MLX", None),
    ],
)
def test_a_name_that_says_its_weights_are_packed_leads_to_the_whole_ones(name, stored, whole):
    assert how_stored(name) == stored
    assert repository_unpacked(name) == whole


@pytest.mark.parametrize(
    ("name", "loaded"),
    [
        ("Wan-AI/Wan2.1-T2V-1.3B", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"),
        ("wan-ai/wan2.2-t2v-a14b", "Wan-AI/Wan2.2-T2V-A14B-Diffusers"),
        (
            "stabilityai/stable-diffusion-3-medium",
            "stabilityai/stable-diffusion-3-medium-diffusers",
        ),
        ("Kwai-Kolors/Kolors", "Kwai-Kolors/Kolors-diffusers"),
        (
            "Efficient-Large-Model/SANA1.5_1.6B_1024px",
            "Efficient-Large-Model/SANA1.5_1.6B_1024px_diffusers",
        ),
        ("meta-llama/Llama-2-70b-chat", "meta-llama/Llama-2-70b-chat-hf"),
        ("meta-llama/Llama-4-Scout-17B-16E-Original", "meta-llama/Llama-4-Scout-17B-16E"),
        ("state-spaces/mamba-2.8b", "state-spaces/mamba-2.8b-hf"),
        ("allenai/OLMo-7B-Instruct", "allenai/OLMo-7B-Instruct-hf"),
        ("OpenGVLab/InternVL3-78B", "OpenGVLab/InternVL3-78B-hf"),
        ("nvidia/Llama-3.1-Nemotron-70B-Instruct", "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF"),
        ("baidu/ERNIE-4.5-21B-A3B-Paddle", "baidu/ERNIE-4.5-21B-A3B-PT"),
        ("liuhaotian/llava-v1.5-7b", "llava-hf/llava-1.5-7b-hf"),
        ("liuhaotian/llava-v1.6-34b", "llava-hf/llava-v1.6-34b-hf"),
        ("lmms-lab/llava-onevision-qwen2-7b-ov", "llava-hf/llava-onevision-qwen2-7b-ov-hf"),
        ("stepfun-ai/GOT-OCR2_0", "stepfun-ai/GOT-OCR-2.0-hf"),
        ("mistralai/Pixtral-12B-2409", "mistral-community/pixtral-12b"),
        ("Wan-AI/Wan2.1-I2V-14B-480P", None),
        ("acme/Wan2.1-T2V-1.3B", None),
    ],
)
def test_a_name_in_its_makers_own_form_leads_to_what_is_loaded(name, loaded):
    assert repository_in_loaded_form(name) == loaded
    with pytest.raises(UnknownName):
        card(name)


def test_no_name_of_a_card_says_that_its_weights_are_packed():
    every = [each for name in card_names() for each in repositories(card(name))]
    assert len(every) > 700
    assert not [each for each in every if how_stored(each)]


def test_a_copy_is_never_what_a_short_name_stands_for():
    assert repository("Llama-3.1-8B-Instruct") == "meta-llama/Llama-3.1-8B-Instruct"
    assert repository("Qwen3-4B-Instruct-2507") == "Qwen/Qwen3-4B-Instruct-2507"
    assert repository("gemma-3-4b-it") == "google/gemma-3-4b-it"


@pytest.mark.parametrize(
    ("copy", "copied"),
    [
        ("unsloth/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507"),
        ("unsloth/granite-4.0-micro", "ibm-granite/granite-4.0-micro"),
        ("unsloth/whisper-large-v3", "openai/whisper-large-v3"),
    ],
)
def test_unsloths_copies_are_what_they_bear_the_name_of(copy, copied):
    assert card(copy) == card(copied)
    assert repository(copy) == copy


@pytest.mark.parametrize("name", ["Phi-3.5-mini-instruct", "SmolLM2-1.7B", "no-such-model"])
def test_a_copy_in_another_form_is_not_taken_for_the_original(name):
    with pytest.raises(UnknownName):
        card(f"unsloth/{name}")


def test_no_card_repeats_what_the_name_of_a_copy_says():
    every = [(name, each) for name in card_names() for each in repositories(card(name))]
    owners: dict[str, set[str]] = {}
    for owner, each in every:
        if not each.lower().startswith("unsloth/"):
            owners.setdefault(each.lower().rpartition("/")[2], set()).add(owner)
    copies = {each.lower().rpartition("/")[2] for _, each in every if each.startswith("unsloth/")}
    repeated = {each for each in copies if len(owners.get(each, ())) == 1}
    assert len(copies) > 10
    # Meta's name is Meta-Llama-3-8B: what else is called so is not what the copy is of
    assert not {each for each in repeated - {"llama-3-8b"} if not each.startswith(CHANGED)}
