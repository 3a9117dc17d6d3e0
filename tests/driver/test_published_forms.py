"""Models whose weights are published in MXFP4 or FP8: what a plan makes of them, and its files."""

import json

import pytest
import yaml
from planning import planned, spec_of

import tunec
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_spec
from tunec.schemas.models.catalogue import card
from tunec.schemas.models.published_form import EXPANDED, published_in

DATA = {"train": "train.jsonl", "samples": 10_000, "sequence": 1024}
CLASSES = {"mxfp4": "Mxfp4Config", "fp8": "FineGrainedFP8Config"}


def of(model, method="lora", hardware="h100-x8-n4"):
    return planned(model=model, method=method, hardware=hardware, data=DATA)


@pytest.mark.parametrize("form", EXPANDED)
def test_transformers_expands_a_form_and_takes_no_other_quantisation_beside_it(form):
    transformers = pytest.importorskip("transformers")
    auto = pytest.importorskip("transformers.quantizers.auto")
    merge = auto.AutoHfQuantizer.merge_quantization_configs
    told = getattr(transformers, CLASSES[form])(dequantize=True)
    assert merge({"quant_method": form}, told).dequantize
    for other in (transformers.BitsAndBytesConfig(load_in_4bit=True), {"dequantize": True}):
        with pytest.raises(ValueError, match="is quantized with"):
            merge({"quant_method": form}, other)


@pytest.mark.parametrize(
    ("model", "form"),
    [
        ("openai/gpt-oss-20b", "mxfp4"),
        ("deepseek-ai/DeepSeek-R1", "fp8"),
        ("unsloth/gpt-oss-20b-BF16", "none"),
        ("unsloth/DeepSeek-R1-BF16", "none"),
        ("Qwen/Qwen3-30B-A3B", "none"),
    ],
)
def test_the_catalogue_knows_the_form_of_each_repository(model, form):
    assert published_in(card(model).config) == form


def test_a_form_is_reported_with_the_copy_in_16_bits():
    found = of("openai/gpt-oss-20b")
    note = next(each for each in found.diagnostics if each.id == "expanded-in-loading")
    assert "published in MXFP4, and trained in 16 bits: 39.0 GiB" in note.message
    assert "lmsys/gpt-oss-20b-bf16" in note.help
    copy = of("lmsys/gpt-oss-20b-bf16")
    assert "expanded-in-loading" not in {each.id for each in copy.diagnostics}
    assert copy.memory.required_bytes == found.memory.required_bytes


@pytest.mark.parametrize("method", ["qlora", "int8_lora"])
def test_what_is_published_quantised_is_not_quantised_again(method):
    found = of("openai/gpt-oss-20b", method)
    assert [each.id for each in found.diagnostics if each.severity == "error"] == ["E0602"]
    assert of("unsloth/gpt-oss-20b-BF16", method).ok


def compiled(target, model, method, hardware="h100-x8-n4"):
    spec = spec_of(model=model, method=method, hardware=hardware, data=DATA)
    return tunec.compile(spec, targets=[target])


@pytest.mark.parametrize("method", ["full", "lora"])
def test_axolotl_is_told_to_expand_it(method):
    """It installs `kernels`, beside which MXFP4 stays as it is and is not trained."""
    found = compiled("axolotl", "openai/gpt-oss-20b", method)
    assert found.ok
    assert "quantisation-without-training" not in {each.id for each in found.diagnostics}
    file = yaml.safe_load(found.texts()["axolotl/axolotl.yaml"])
    assert file["model_quantization_config"] == CLASSES["mxfp4"]
    assert file["model_quantization_config_kwargs"] == {"dequantize": True}
    assert file["attn_implementation"] == "eager"
    copy = compiled("axolotl", "unsloth/gpt-oss-20b-BF16", method)
    assert "model_quantization_config" not in copy.texts()["axolotl/axolotl.yaml"]


def severities(found):
    named = (each for each in found.diagnostics if each.id == "quantisation-without-training")
    return [each.severity for each in named]


def test_no_key_of_trl_says_it_and_what_follows_is_told():
    assert severities(compiled("trl", "openai/gpt-oss-20b", "lora")) == ["warning"]
    assert severities(compiled("trl", "MiniMaxAI/MiniMax-M2.7", "full", "h100-x8-n16")) == ["error"]
    assert not severities(compiled("trl", "MiniMaxAI/MiniMax-M2.7", "full", "a100-80g-x8-n16"))
    assert not severities(compiled("trl", "unsloth/gpt-oss-20b-BF16", "lora"))


def test_an_older_axolotl_does_not_expand_fp8():
    found = compiled("axolotl@0.16", "MiniMaxAI/MiniMax-M2.7", "lora")
    assert "E0905" in {each.id for each in found.diagnostics}


@pytest.mark.parametrize(("method", "is_taken"), [("mxfp4", True), ("fp8", True), ("gptq", False)])
def test_a_config_of_ones_own_says_the_form(tmp_path, method, is_taken):
    config = {**card("gpt-oss-20b").config, "quantization_config": {"quant_method": method}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = tmp_path / "spec.yaml"
    spec.write_text(json.dumps(spec_of(model="./config.json", hardware="h100-x8-n4")))
    loaded = load_spec(spec)
    refused = [each for each in loaded.diagnostics if each.id == "E0312"]
    assert bool(refused) is not is_taken
    if is_taken:
        assert plan(loaded).plan.model.published == method
