"""Configs that cannot be used, and expressions of users that cost too much, say what is wrong."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.small_spec import SPEC

from tunec.compiler.analyses.architecture import (
    FAMILIES,
    UnknownArchitecture,
    UnusableConfig,
    derive,
)
from tunec.compiler.analyses.architecture.expressions import compiled
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_text
from tunec.compiler.resolve import catalogued
from tunec.schemas.models.catalogue import card, card_names


def faults(config):
    with pytest.raises(UnusableConfig) as raised:
        derive(config)
    return {fault.path: (fault.expected, fault.found) for fault in raised.value.faults}


def test_all_faults_come_at_once():
    found = faults({"model_type": "llama", "hidden_size": "4096", "vocab_size": 0, "mlp_bias": 1})
    assert found == {
        "hidden_size": ("a positive integer", "'4096'"),
        "vocab_size": ("a positive integer", "0"),
        "mlp_bias": ("true or false", "1"),
    }


def test_a_missing_key_without_a_default_is_a_fault():
    found = faults({"model_type": "chatglm", "hidden_size": 4096})
    assert found["num_layers"] == ("a positive integer", "nothing")
    assert found["num_attention_heads"] == ("a positive integer", "nothing")


def test_a_fault_in_a_section_has_its_whole_path():
    config = {"model_type": "llava", "text_config": {"model_type": "llama", "hidden_size": -1}}
    assert list(faults(config)) == ["text_config.hidden_size"]


def test_a_section_that_is_no_mapping_is_a_fault():
    assert faults({"model_type": "mllama", "vision_config": 3})["vision_config"] == (
        "a mapping",
        "3",
    )


def test_an_unknown_family_inside_is_a_fault():
    config = {"model_type": "llava", "text_config": {"model_type": "nonesuch"}}
    assert faults(config)["text_config.model_type"][1] == "'nonesuch'"


def test_an_unknown_family_is_named_with_the_known_ones():
    with pytest.raises(UnknownArchitecture) as raised:
        derive({"model_type": "nonesuch"})
    assert raised.value.family == "nonesuch"
    assert set(raised.value.known) == set(FAMILIES)
    assert str(raised.value) == "no architecture is known for the family 'nonesuch'"


@pytest.mark.parametrize("config", [{}, {"model_type": None}, {"model_type": 3}])
def test_a_config_without_a_family_is_a_fault(config):
    assert list(faults(config)) == ["model_type"]


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"class_embed_type": "timestep"}, "class_embed_type"),
        ({"addition_embed_type": "image"}, "addition_embed_type"),
        ({"down_block_types": ["AttnDownBlock2D"] * 3}, "down_block_types"),
        ({"layers_per_block": [2, 2]}, "layers_per_block"),
        ({"block_out_channels": []}, "block_out_channels"),
        ({"mid_block_type": None}, "mid_block_type"),
    ],
)
def test_a_unet_that_is_not_known_is_refused(changed, path):
    assert path in faults({**card("sdxl-base-1.0").config, **changed})


def test_defaults_that_were_taken_are_listed():
    architecture = derive({"model_type": "llama", "hidden_size": 2048})
    assert "num_hidden_layers" in architecture.assumed
    assert "hidden_size" not in architecture.assumed
    nested = derive(card("llava-1.5-7b").config)
    assert "text_config.num_hidden_layers" in nested.assumed


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.lists(st.integers(-2, 3), max_size=3),
    st.dictionaries(st.sampled_from(["model_type", "hidden_size"]), st.integers(), max_size=2),
)


@given(data=st.data(), name=st.sampled_from(card_names()))
def test_mangled_configs_never_raise_anything_else(data, name):
    config = dict(card(name).config)
    for key in data.draw(st.lists(st.sampled_from(sorted(config)), max_size=3)):
        if data.draw(st.booleans()):
            config[key] = data.draw(JUNK)
        else:
            config.pop(key, None)
    with suppress(UnusableConfig, UnknownArchitecture):
        derive(config)


@given(data=st.data(), family=st.sampled_from(sorted(FAMILIES)))
def test_mangled_families_never_raise_anything_else(data, family):
    from tunec.compiler.analyses.architecture.facts import DEFAULTS

    keys = sorted(DEFAULTS.get(family, {"hidden_size": 1}))
    config = {
        key: data.draw(JUNK) for key in data.draw(st.lists(st.sampled_from(keys), max_size=4))
    }
    with suppress(UnusableConfig, UnknownArchitecture):
        derive({**config, "model_type": family})


USUAL = (
    *(r".*\.(q_proj|k_proj|v_proj)", r"[\w.]+", r"", r"(?>a+)b", r"(x)?(?(1)a|b)"),
    *(r"model\.layers\.(\d+)\.(self_attn|mlp)\.(.*)_proj", r"^(?!.*visual).*\.(q|k|v|o)_proj$"),
    *(r"^(language_model(?=\.).*\.(k_proj|linear_fc2|v_proj|o_proj|q_proj))$", r".*.*.*.*!"),
    *(r"(.*(transformer_blocks|single).*\.(attn|ff).*(to_k|to_q))", r"((a{1,3}){1,3}){1,3}"),
)
ENDLESS = (
    *(r"(a+)+b", r"(a|a)*b", r"(?:a?){30}a{30}", "a?" * 30 + "a" * 30, r".*.*.*.*.*!"),
    *(r"(.*a){9}", r"(?=(a+)+b)a", r"([a-z]+\.?)*!", r"(\w|\w\w)+!", r"((a{0,9}){0,9}){0,9}b"),
)


@pytest.mark.parametrize("expression", USUAL)
def test_usual_ones_are_compiled_as_they_are(expression):
    assert compiled(expression) == re.compile(expression)


@pytest.mark.parametrize("expression", ENDLESS)
def test_one_that_can_take_for_ever_is_refused(expression):
    with pytest.raises(re.error, match="can take too long"):
        compiled(expression)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("a**", "multiple repeat"),
        ("a{99999999999}", "too large"),
        ("(" * 3000, "too deeply|missing"),
    ],
)
def test_what_is_none_is_told(expression, said):
    with pytest.raises(re.error, match=said):
        compiled(expression)


def test_no_name_of_the_catalogue_is_longer_than_is_counted():
    from tunec.compiler.analyses.architecture import expressions
    from tunec.schemas.models.catalogue import card_names

    longest = 0
    for name in card_names():
        for module in catalogued(name).architecture.modules:
            longest = max(longest, len(next(iter(module.names()))))
    assert longest == expressions._LONGEST


def test_a_spec_that_says_one_is_told_where():
    text = SPEC.replace("method: lora", "method: {lora: {targets: '(a+)+b'}}")
    assert text != SPEC
    (fault,) = (d for d in plan(load_text(text)).diagnostics if d.severity == "error")
    assert fault.id == "E0605"
    assert "can take too long" in fault.message
    assert fault.span is not None
